"""From the values of a job to the JSON of Flink's REST interface; nothing here waits."""
