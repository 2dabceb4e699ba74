"""From the rules' results to a diagnosis: ranking, hysteresis, cost and the verdict."""
