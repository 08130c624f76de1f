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
func (s *DBTime) Scan(v any) error {
	switch t := v.(type) {
	case nil:
		s.Time = time.Time{}
		return nil
	case time.Time:
		s.Time = t.UTC()
	case string:
		return s.parse(t)
	case []byte:
		return s.parse(string(t))
	default:
		return fmt.Errorf("scan time: unexpected %T", v)
	}
	s.none()
	return nil
}

// parse reads DBTimeLayout.
func (s *DBTime) parse(text string) error {
	t, err := time.ParseInLocation(DBTimeLayout, text, time.UTC)
	if err != nil {
		return fmt.Errorf("scan time: %w", err)
	}
	s.Time = t
	s.none()
	return nil
}

// none turns the fixed date into the zero time.
func (s *DBTime) none() {
	if s.Year() == noneYear {
		s.Time = time.Time{}
	}
}
