package pgtest

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/postgres"
)

// Server is a PostgreSQL server that no other test uses: one to stop, to make a standby
// of, or to change the settings of. Its functions are for the test's goroutine.
type Server struct {
	*postgres.Server
	// Pool is of up to 8 connections to its database postgres, which has the schema of
	// package db. It is closed when the test ends.
	Pool *pgxpool.Pool

	t      testing.TB
	config postgres.Config
}

// NewServer starts a server from this machine's binaries, and stops it when the test ends.
// Without binaries the test is skipped, as by Lacks.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, config: postgres.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true}}
	s.Start()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.Pool = open(t, s.URL("postgres"))
	connection := s.Pool.Config().ConnConfig
	s.config.Port = int(connection.Port)
	if _, err := migrate.Up(t.Context(), connection, db.Schema(), migrate.Config{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// Start starts the server after Stop, with its data and at its address.
func (s *Server) Start() {
	s.t.Helper()
	started, err := postgres.Start(s.t.Context(), s.config)
	if errors.Is(err, postgres.ErrNoPostgres) {
		Lacks(s.t, err)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.Server = started
}
