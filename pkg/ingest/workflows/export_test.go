package workflows

// NewPolling is New with another time between two looks at documents under way.
var NewPolling = newPolling
