"""Pure signal processing: waveforms, periods, pauses, phases, loads and trends."""
