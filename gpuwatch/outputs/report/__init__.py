"""Reports: what a job, or a whole machine, did over a time; added up, kept, compared, written."""
