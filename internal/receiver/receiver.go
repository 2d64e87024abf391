package receiver

import (
	"encoding/json"
	"hash/maphash"
	"net/http"
	"sync/atomic"
)

// Receiver judges the requests it is sent. It is an http.Handler: a POST to
// any path is a webhook, a GET answers with the Verdict of its path, and GET /
// with that of all. All its methods may be called at any time, from many
// goroutines at once.
type Receiver struct {
	config Config
	seed   maphash.Seed

	endpoints endpoints
	events    events
	streams   streams
	total     counters // of Light mode, which knows no paths
	examples  examples

	keys      atomic.Pointer[keyring]   // of AnyPath
	behaviour atomic.Pointer[Behaviour] // of AnyPath
	light     atomic.Pointer[script]

	accepted, ended gate
	subscribers     subscribers
	log             requestLog
}

// New returns a receiver, or an error that names what is wrong with config.
func New(config Config) (*Receiver, error) {
	r := &Receiver{config: config.withDefaults(), seed: maphash.MakeSeed()}
	r.endpoints.seed = r.seed
	r.examples.limit = int32(r.config.Examples)
	r.log.w = r.config.Log
	if err := r.Behave(AnyPath, config.Behaviour); err != nil {
		return nil, err
	}
	for path, secrets := range config.Secrets {
		if err := r.SetSecrets(path, secrets...); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// SetSecrets replaces the signing keys of a path: whsec_ secrets for v1, whpk_
// public keys for v1a. One of them must have signed each request from now on.
// Without any, the path falls back to those of AnyPath.
func (r *Receiver) SetSecrets(path string, secrets ...string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	keys, err := newKeyring(secrets)
	if err != nil {
		return err
	}
	if keys.empty() {
		keys = nil
	}
	if path == AnyPath {
		r.keys.Store(keys)
		return nil
	}
	r.endpoints.get(path).keys.Store(keys)
	return nil
}

// Behave replaces how a path answers, from its next request on. Setting the
// Behaviour of AnyPath does not touch the paths that were given their own.
func (r *Receiver) Behave(path string, b Behaviour) error {
	if err := checkPath(path); err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	if path == AnyPath {
		r.light.Store(newScript(b, nil))
		r.behaviour.Store(&b)
		return nil
	}
	r.endpoints.get(path).script.Store(newScript(b, nil))
	return nil
}

// script returns the behaviour at work on an endpoint. One that comes from
// AnyPath is still the endpoint's own copy: each path fails its own first N.
func (r *Receiver) script(e *endpoint) *script {
	for {
		s := e.script.Load()
		if s != nil && s.common == nil {
			return s
		}
		common := r.behaviour.Load()
		if s != nil && s.common == common {
			return s
		}
		if fresh := newScript(*common, common); e.script.CompareAndSwap(s, fresh) {
			return fresh
		}
	}
}

func (r *Receiver) keyring(e *endpoint) *keyring {
	if k := e.keys.Load(); k != nil {
		return k
	}
	return r.keys.Load()
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.Method == http.MethodPost && r.config.Light:
		r.count(w, req)
	case req.Method == http.MethodPost:
		r.receive(w, req)
	case req.Method == http.MethodGet || req.Method == http.MethodHead:
		r.report(w, req)
	default:
		w.Header().Set("Allow", "POST, GET, HEAD")
		http.Error(w, "POST a webhook, or GET the verdict", http.StatusMethodNotAllowed)
	}
}

func (r *Receiver) report(w http.ResponseWriter, req *http.Request) {
	v := r.VerdictOf(req.URL.Path)
	if req.URL.Path == "/" {
		v = r.Verdict()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // whoever asked has gone
}
