// Package settings reads how Postlane's processes are configured: from the
// environment, with a flag of the same name for each.
package settings

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"unicode"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/retention"
)

// Mode says what kind of endpoints are allowed.
type Mode string

const (
	// Production: https, and public addresses only.
	Production Mode = "production"
	// Development: http and loopback too.
	Development Mode = "development"
)

// Need is what a command cannot do without, beyond the database.
type Need int

const (
	NeedDatabase Need = 1 << iota
	NeedSecretKey
	NeedListen
	NeedKeep
	NeedRelay
)

// RelayWebhooks is the Settings.Relay that publishes staged messages as webhook events.
// Publishers that bring a broker's client along are modules of their own, for programs
// that import them.
const RelayWebhooks = "webhooks"

// Settings are those of a process.
type Settings struct {
	// Databases are where PostgreSQL is: one, or several that share the tenants.
	Databases   []Database
	Listen      string
	Mode        Mode
	OperatorKey string
	// Rate is how many requests a second an API key may make.
	Rate    float64
	Keyring *delivery.Keyring
	// Keep says for how long what is over is kept.
	Keep retention.Keep
	// Relay says what becomes of messages staged in the outbox: RelayWebhooks, or "", and
	// another process relays them.
	Relay string
}

// minOperatorKey is the shortest operator's key that is taken: it opens everything, and
// nothing but its length keeps it from being guessed.
const minOperatorKey = 20

// Flags returns the flags for what a command needs.
func Flags(need Need) []cli.Flag {
	flags := []cli.Flag{
		flag("database-url", "", "PostgreSQL's connection URL; several, with spaces between them, share the tenants"),
		flag("database", "", "of several databases the one to work on: host/database, as output names it (default: all)"),
	}
	if need&(NeedSecretKey|NeedListen) != 0 {
		flags = append(flags,
			flag("mode", string(Production), "which endpoints are allowed: production (https, public addresses), or development (http and loopback too)"),
			flag("secret-key", "", "32 random bytes in base64 that encrypt signing secrets at rest; after a comma, older keys that still decrypt. Prefer the environment: flags show in process lists"),
			flag("secret-key-file", "", "a file that holds what -secret-key would, with lines or commas between the keys"))
	}
	if need&NeedListen != 0 {
		flags = append(flags,
			flag("listen", "127.0.0.1:8080", "the address that the server listens on"),
			flag("replica-url", "", "a streaming standby that the console's pages and the API's lists are read from; with several databases as many, in the same order"),
			flag("operator-key", "", "the operator's API key. Prefer the environment: flags show in process lists"),
			&cli.FloatFlag{Name: "rate-limit", Value: 100, Usage: "requests a second that each API key may make, twice as many at once", Sources: cli.EnvVars(Env("rate-limit"))})
	}
	if need&NeedKeep != 0 {
		flags = append(flags, keepFlags()...)
	}
	if need&NeedRelay != 0 {
		flags = append(flags, flag("relay", "", "relay the outbox's messages: "+RelayWebhooks+", each as an event (default: they are left to another process)"))
	}
	return flags
}

func flag(name, value, usage string) cli.Flag {
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, Sources: cli.EnvVars(Env(name))}
}

// Env is the environment variable of a flag.
func Env(flag string) string {
	return "POSTLANE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Read reads the settings of a command, and refuses all that is missing or wrong at
// once.
func Read(c *cli.Command, need Need) (Settings, error) {
	s := Settings{
		Listen: c.String("listen"), Mode: Mode(c.String("mode")), OperatorKey: c.String("operator-key"),
		Rate: c.Float("rate-limit"),
	}
	var errs []error
	refuse := func(name, problem string) {
		errs = append(errs, fmt.Errorf("%s (or -%s) %s", Env(name), name, problem))
	}
	s.Databases = readDatabases(c, refuse)
	if need&(NeedSecretKey|NeedListen) != 0 {
		if s.Mode != Production && s.Mode != Development {
			refuse("mode", fmt.Sprintf("is %q; use production or development", s.Mode))
		}
		if keys, err := secretKeys(c.String("secret-key"), c.String("secret-key-file")); err != nil {
			refuse("secret-key-file", err.Error())
		} else if len(keys) == 0 {
			refuse("secret-key", "is not set, nor is "+Env("secret-key-file")+": signing secrets are encrypted with it; make one with: openssl rand -base64 32")
		} else if keyring, err := delivery.ParseKeyring(keys...); err != nil {
			refuse("secret-key", strings.TrimPrefix(err.Error(), "delivery: "))
		} else {
			s.Keyring = keyring
		}
	}
	if need&NeedListen != 0 {
		if _, _, err := net.SplitHostPort(s.Listen); err != nil {
			refuse("listen", fmt.Sprintf("is %q; use host:port, such as 127.0.0.1:8080", s.Listen))
		}
		if s.OperatorKey != "" && len(s.OperatorKey) < minOperatorKey {
			refuse("operator-key", fmt.Sprintf("is shorter than %d characters; make one with: openssl rand -base64 32", minOperatorKey))
		}
		if !(s.Rate > 0) {
			refuse("rate-limit", "is not above 0")
		}
	}
	if need&NeedKeep != 0 {
		s.Keep = readKeep(c, refuse)
	}
	if need&NeedRelay != 0 {
		if s.Relay = c.String("relay"); s.Relay != "" && s.Relay != RelayWebhooks {
			refuse("relay", fmt.Sprintf("is %q; use %s, or leave it out", s.Relay, RelayWebhooks))
		}
	}
	return s, errors.Join(errs...)
}

// secretKeys splits the keys of the text, or of the file where there is none.
func secretKeys(text, file string) ([]string, error) {
	if text == "" && file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot be read: %w", err)
		}
		text = string(content)
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }), nil
}

// Environ is the environment of a child process with these settings.
func (s Settings) Environ(secretKey []byte) []string {
	urls := make([]string, len(s.Databases))
	for i, d := range s.Databases {
		urls[i] = d.URL
	}
	return append(os.Environ(),
		Env("database-url")+"="+strings.Join(urls, " "),
		Env("listen")+"="+s.Listen,
		Env("mode")+"="+string(s.Mode),
		Env("operator-key")+"="+s.OperatorKey,
		Env("secret-key")+"="+base64.StdEncoding.EncodeToString(secretKey),
	)
}

// Guard is the guard of the mode.
func (s Settings) Guard() (*guard.Guard, error) {
	return guard.New(guard.Policy{Development: s.Mode == Development})
}
