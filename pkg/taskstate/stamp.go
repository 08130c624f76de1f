package taskstate

import (
	"fmt"
	"time"
)

// DBTimeLayout is how SQLite keeps times: UTC, microseconds, fixed width, so that text order is time order.
const DBTimeLayout = "2006-01-02 15:04:05.000000"

// noneYear marks the fixed date that stands for "none" in NOT NULL columns (design D3).
const noneYear = 9999

// DBTime scans a time column of any dialect: NULL and the fixed date of year 9999 give the zero time; always UTC.
type DBTime struct{ time.Time }

// Scan implements sql.Scanner.
func (s *DBTime) Scan(v any) (err error) {
	s.Time = time.Time{}
	switch t := v.(type) {
	case nil:
	case time.Time:
		s.Time = t.UTC()
	case string:
		s.Time, err = time.ParseInLocation(DBTimeLayout, t, time.UTC)
	case []byte:
		s.Time, err = time.ParseInLocation(DBTimeLayout, string(t), time.UTC)
	default:
		err = fmt.Errorf("unexpected %T", v)
	}
	if err != nil {
		return fmt.Errorf("scan time: %w", err)
	}
	if s.Year() == noneYear {
		s.Time = time.Time{}
	}
	return nil
}
