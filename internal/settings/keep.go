package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/internal/retention"
)

// keepNames are the flags for how long what is over is kept.
var keepNames = map[string]string{
	"keep-settled":  "how long deliveries that were delivered or discarded stay in the log, with their attempts",
	"keep-dead":     "how long dead letters can be looked at and retried",
	"keep-events":   "how long events and their payloads are kept, unless a delivery still needs them",
	"keep-messages": "how long the outbox keeps messages that were published, and their ids",
	"keep-audit":    "how long the audit log is kept",
}

func keepFlags() (flags []cli.Flag) {
	for _, name := range slices.Sorted(maps.Keys(keepNames)) {
		flags = append(flags, flag(name, "", keepNames[name]+", such as 30d or 36h (default: for ever)"))
	}
	return flags
}

// readKeep reads them, and tells refuse of all that is wrong.
func readKeep(c *cli.Command, refuse func(name, problem string)) retention.Keep {
	read := func(name string) time.Duration {
		d, err := age(c.String(name))
		if err != nil {
			refuse(name, err.Error())
		}
		return d
	}
	return retention.Keep{Settled: read("keep-settled"), Dead: read("keep-dead"), Events: read("keep-events"), Messages: read("keep-messages"), Audit: read("keep-audit")}
}

// age reads a duration that may be in days. "" is for ever, and so is 0.
func age(text string) (time.Duration, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	var d time.Duration
	var err error
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int64
		if n, err = strconv.ParseInt(days, 10, 32); n > 100*366 {
			err = strconv.ErrRange
		}
		d = time.Duration(n) * 24 * time.Hour
	} else {
		d, err = time.ParseDuration(text)
	}
	// What is younger than a minute may be what somebody is looking at.
	if err != nil || d < time.Minute {
		return 0, fmt.Errorf("is %q; use a time of a minute or more, such as 30d or 36h, or 0 for ever", text)
	}
	return d, nil
}
