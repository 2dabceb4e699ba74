"""What a careful colleague would check on a machine where gpuwatch is to run (``gpuwatch doctor``)."""
