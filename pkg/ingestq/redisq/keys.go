package redisq

// aliveKey is a string "1" that exists while the member lives; TTL Config.HeartbeatTTL, written anew every third of it.
// It begins with the stream's key, or what several streams have in common, so that it is found beside it and two groups or
// streams never share one.
func aliveKey(beats, group, consumer string) string {
	return beats + ":alive:" + group + ":" + consumer
}
