package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/internal/receiver"
)

func (a *app) receiveCommand() *cli.Command {
	return &cli.Command{
		Name:  "receive",
		Usage: "run a receiver that verifies signatures and judges order, gaps, overlaps and duplicates",
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.StringFlag{Name: "address", Value: "127.0.0.1:8099", Usage: "where to listen"},
			&cli.StringSliceFlag{Name: "secret", Usage: "a signing secret, for every path, or for one as /path=whsec_...; may be repeated"},
			&cli.IntFlag{Name: "status", Value: 204, Usage: "what to answer"},
			&cli.IntFlag{Name: "fail-first", HideDefault: true, Usage: "how many requests to answer with 503 first"},
			&cli.DurationFlag{Name: "delay", HideDefault: true, Usage: "how long to take for an answer"},
			&cli.BoolFlag{Name: "light", Usage: "count requests and judge nothing: for measuring a sender"},
			&cli.BoolFlag{Name: "mid-stream", Usage: "start judging in the middle of streams: a first arrival with a predecessor is no gap"},
			&cli.BoolFlag{Name: "v", Usage: "print a line a request: never the payload"},
		},
		Action: a.receive,
	}
}

func (a *app) receive(ctx context.Context, c *cli.Command) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	config := receiver.Config{
		Secrets: map[string][]string{}, MidStream: c.Bool("mid-stream"), Light: c.Bool("light"),
		Behaviour: receiver.Behaviour{Status: c.Int("status"), FailFirst: c.Int("fail-first"), Delay: c.Duration("delay")},
	}
	for _, text := range c.StringSlice("secret") {
		path, secret := receiver.AnyPath, text
		if p, s, ok := strings.Cut(text, "=whsec_"); ok {
			path, secret = p, "whsec_"+s
		}
		config.Secrets[path] = append(config.Secrets[path], secret)
	}
	if c.Bool("v") {
		config.Log = a.err
	}
	r, err := receiver.New(config)
	if err != nil {
		return usage(c, "%v", err)
	}
	listener, err := net.Listen("tcp", c.String("address"))
	if err != nil {
		return fmt.Errorf("cannot listen on %s (-address): %w", c.String("address"), err)
	}
	fmt.Fprintf(a.err, "receiving on http://%s/ (GET shows the verdict); Ctrl-C ends it\n", listener.Addr())
	if len(config.Secrets) == 0 && !config.Light {
		fmt.Fprintln(a.err, "no -secret: signatures are not verified")
	}
	progress, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Progress(progress, a.err)
	}()
	err = r.Serve(ctx, listener)
	stop()
	<-done
	v := r.Verdict()
	printErr := a.print(c, v, func(w io.Writer) {
		fmt.Fprintf(w, "%d events in %d requests over %d streams: %d out of order, %d gaps, %d overlaps, %d duplicates, %d bad signatures\n",
			v.Events, v.Requests, v.Streams, v.OutOfOrder, v.Gaps, v.Overlaps, v.Duplicates, v.BadSignatures)
		for _, example := range v.Examples {
			fmt.Fprintln(w, " ", example)
		}
	})
	if err := errors.Join(err, printErr); err != nil {
		return err
	}
	if !config.Light && !v.OK() {
		return fmt.Errorf("the verdict is not clean: %d problems", v.Problems())
	}
	return nil
}
