package view

import (
	"fmt"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

// Replayed is how far a replay has got, or what a dry run counted.
type Replayed struct {
	ID      *string `json:"id"`
	DryRun  bool    `json:"dry_run"`
	Matched *int64  `json:"matched" doc:"Of a dry run: how many events would be replayed"`
	// AtLeast says that there may be more than Matched.
	AtLeast bool `json:"at_least" doc:"Of a dry run: there may be more, which could not be counted in time"`
	// KeptSince is set where the range begins before it.
	KeptSince  *time.Time `json:"kept_since" doc:"Of a dry run: when the oldest event was written that is still kept, where that is after since; what was written before it cannot be replayed"`
	Deliveries int64      `json:"deliveries" doc:"How many deliveries the replay has made so far"`
	Done       bool       `json:"done" doc:"There are no more; else send the same request again"`
}

// NewReplayed returns the view of a replay.
func NewReplayed(id string, r delivery.Replayed) Replayed {
	return Replayed{ID: some(id), Deliveries: r.Deliveries, Done: r.Done}
}

// NewReplayCount returns the view of a dry run.
func NewReplayCount(id string, c delivery.ReplayCount) Replayed {
	v := Replayed{ID: some(id), DryRun: true, Matched: &c.Events, AtLeast: c.More}
	if !c.KeptSince.IsZero() {
		v.KeptSince = utc(&c.KeptSince)
	}
	return v
}

// Detail says it in a line.
func (r *Replayed) Detail() string {
	if !r.DryRun {
		progress := "so far"
		if r.Done {
			progress = "done"
		}
		return fmt.Sprintf("replay %s: %d deliveries, %s", deref(r.ID), r.Deliveries, progress)
	}
	text := fmt.Sprintf("%d events match", *r.Matched)
	if r.AtLeast {
		text = "at least " + text
	}
	if r.KeptSince != nil {
		text += fmt.Sprintf("; those before %s are not kept", r.KeptSince.Format(time.RFC3339))
	}
	return text
}

// deref is a text that may be missing.
func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
