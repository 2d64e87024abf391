package sender

import "time"

// SetClock replaces the clock that stamps requests.
func SetClock(s *Sender, now func() time.Time) { s.now = now }
