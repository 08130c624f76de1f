package stream

import (
	"context"
	"strconv"
	"time"
)

const (
	TrimPortion  = 500 // entries looked at by one script: their payloads pass through it
	trimPortions = 200 // of one stream in one round
)

// Keep says what a trim leaves. What a group has not finished always stays.
type Keep struct {
	MaxLen   int           // entries; 0: any number
	MaxAge   time.Duration // 0: any time
	Finished bool          // nothing that every group has finished; without any group it does nothing
}

// Trim removes entries, or in a dry run counts them. It returns their number, and the id below which every group has finished, ""
// when there is no group. A missing stream is an empty one. Error: the server's own; what was removed before it counts.
func (r Runner) Trim(ctx context.Context, script Script, key string, keep Keep, dryRun bool) (total int, border string, err error) {
	args := []string{"", "", strconv.Itoa(TrimPortion), Flag(keep.Finished), "", ""}
	if keep.MaxLen > 0 {
		args[0] = strconv.Itoa(keep.MaxLen)
	}
	if keep.MaxAge > 0 {
		args[1] = Millis(keep.MaxAge)
	}
	if dryRun {
		args[4] = "-"
	}
	for range trimPortions {
		answer, err := r.Run(ctx, script, []string{key}, args...).ToArray()
		if err != nil {
			return total, border, err
		}
		n := int(Number(answer[0], 0))
		border = Text(answer[1])
		total += n
		if n < TrimPortion || keep.Finished && !dryRun { // all of them went at once
			break
		}
		if dryRun {
			args[4], args[5] = Text(answer[2]), strconv.Itoa(total)
		}
	}
	return total, border, nil
}
