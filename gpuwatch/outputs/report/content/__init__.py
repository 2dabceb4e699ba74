"""What a report says, in which order and in which words, for every form."""
