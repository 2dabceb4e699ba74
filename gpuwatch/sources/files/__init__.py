"""Text files that anyone wrote: plain, compressed, damaged or in several parts."""
