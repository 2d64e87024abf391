package sender_test

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/sender"
)

func TestZeroConfigIsProduction(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	srv := listen(t, nil, answering(ok200))
	s, err := sender.New(sender.Config{})
	is.NoErr(err)
	t.Cleanup(s.Close)
	want(t, send(t, s, newRequest(srv.url())), sender.Blocked, 0)
	want(t, send(t, s, newRequest("https://127.0.0.1:"+srv.port()+"/")), sender.Blocked, 0)
	is.Equal(srv.accepted.Load(), int64(0))
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]sender.Config{
		"Timeout":          {Timeout: -1},
		"ConnectTimeout":   {ConnectTimeout: -1},
		"TLSTimeout":       {Timeout: time.Second, TLSTimeout: 2 * time.Second},
		"BodyTimeout":      {Timeout: time.Second, BodyTimeout: time.Minute},
		"IdleTimeout":      {IdleTimeout: -time.Second},
		"MaxBodyBytes":     {MaxBodyBytes: 1 << 21},
		"MaxHeaderBytes":   {MaxHeaderBytes: 10},
		"IdleConnsPerHost": {IdleConnsPerHost: -1},
		"IdleConns":        {IdleConnsPerHost: 10, IdleConns: 5},
		"UserAgent":        {UserAgent: "a\r\nb"},
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, err := sender.New(c)
			is.True(s == nil)
			is.True(err != nil)
			is.True(strings.Contains(err.Error(), field)) // it says which
		})
	}
	t.Run("all at once", func(t *testing.T) {
		t.Parallel()
		is := is.New(t)
		_, err := sender.New(sender.Config{Timeout: time.Hour, MaxBodyBytes: -1, UserAgent: "\n"})
		for _, field := range []string{"Timeout", "MaxBodyBytes", "UserAgent"} {
			is.True(strings.Contains(err.Error(), field))
		}
	})
}

func TestShortTimeoutShortensItsParts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, err := sender.New(sender.Config{Timeout: time.Second}) // ConnectTimeout is 5 s by default
	is.NoErr(err)
	s.Close()
}
