"""Why a GPU is under-used."""
