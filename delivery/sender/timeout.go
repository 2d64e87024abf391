package sender

import "time"

// Timeout returns how long an attempt may take in all.
func (s *Sender) Timeout() time.Duration { return s.config.Timeout }
