package postgres

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config says what server to run. Only Dir is needed.
type Config struct {
	// Dir is the data directory. It is made where it is missing or empty; data
	// that is there is kept. No two servers can have the same one.
	Dir string

	// Bin is the directory of the server binaries. Default: what Find finds,
	// of the major version that the data in Dir is of.
	Bin string

	// Port is the TCP port on 127.0.0.1. Default: a free one, at each start.
	Port int

	// User is the user of this machine that the server runs as when this
	// process is root, and ignored otherwise. Default: postgres if there is
	// one, else nobody.
	User string

	// NoSync trades durability for speed: fsync and
	// full_page_writes are off. The data survives a killed server, not a
	// machine that loses power. For tests, never for measurements.
	NoSync bool

	// MaxConnections is PostgreSQL's max_connections. Default: 300.
	MaxConnections int

	// SharedBuffers is PostgreSQL's shared_buffers. Default: 128MB.
	SharedBuffers string

	// Settings are further settings of the server by their names in
	// postgresql.conf. They win over the fields above.
	Settings map[string]string

	// StopTimeout is how long a fast shutdown may take before the server is
	// told to abort, which the next start recovers from. Default: 10 s.
	StopTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("postgres: Config.Dir is missing")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, err
	}
	c.Dir = dir
	c.MaxConnections = cmp.Or(c.MaxConnections, 300)
	c.SharedBuffers = cmp.Or(c.SharedBuffers, "128MB")
	c.StopTimeout = cmp.Or(c.StopTimeout, 10*time.Second)
	return c, nil
}

// arguments returns the command line of the server.
func (c Config) arguments(port int) []string {
	settings := map[string]string{
		"listen_addresses":           "127.0.0.1",
		"port":                       strconv.Itoa(port),
		"unix_socket_directories":    socketDirs(c.Dir),
		"max_connections":            strconv.Itoa(c.MaxConnections),
		"shared_buffers":             c.SharedBuffers,
		"dynamic_shared_memory_type": "mmap", // a container's /dev/shm is often 64 MB
		"logging_collector":          "off",
		"timezone":                   "UTC",
		"log_timezone":               "UTC",
	}
	if c.NoSync {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, c.Settings)

	arguments := []string{"-D", c.Dir}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		arguments = append(arguments, "-c", name+"="+settings[name])
	}
	return arguments
}

// socketDirs returns where the server's unix socket is to be, as a list of one:
// its data directory, which nobody else can enter, so that it needs no password
// there. Where the path would be longer than a socket's may be there is none.
func socketDirs(dir string) string {
	const longest = 103 // macOS; Linux takes 107
	if len(filepath.Join(dir, ".s.PGSQL.65535.lock")) > longest {
		return ""
	}
	return `"` + strings.ReplaceAll(dir, `"`, `""`) + `"`
}
