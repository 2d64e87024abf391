package receiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
)

// Serve answers on ln until ctx is over, then stops cleanly: no new request is
// taken, held and delayed ones are answered 503, all open ones get Config.Grace
// to end, and ln is closed. It returns nil after such a stop, also when the
// grace ran out, and once all its goroutines have ended or lost their
// connection. The verdict stays, and Serve may be called again with another
// listener: an endpoint that was down for a while.
func (r *Receiver) Serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{
		Handler:           r,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		MaxHeaderBytes:    r.config.MaxHeader,
		ReadHeaderTimeout: r.config.ReadHeaderTimeout,
		ReadTimeout:       r.config.ReadTimeout,
		WriteTimeout:      r.config.WriteTimeout,
		IdleTimeout:       r.config.IdleTimeout,
		ErrorLog:          log.New(io.Discard, "", 0), // a sender that hangs up is no news here
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	select {
	case err := <-served:
		return fmt.Errorf("receiver: serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.Grace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("receiver: serve %s: %w", ln.Addr(), err)
	}
	return nil
}
