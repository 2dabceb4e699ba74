"""Reports on a job or a whole machine over a time: added up, kept, compared, written."""
