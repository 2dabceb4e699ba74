"""Pure signal processing: waveforms, periods, pauses, trends and running means."""
