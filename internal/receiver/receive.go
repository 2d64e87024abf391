package receiver

import (
	"errors"
	"hash/maphash"
	"maps"
	"net/http"
	"time"
)

// visit is one request on its way through the receiver.
type visit struct {
	Arrival
	r        *Receiver
	endpoint *endpoint
	stream   uint64
	ticket   uint64   // of the request in its stream
	witness  *witness // nil, or still to be asked for an overlap
	event    uint64   // key, once it has arrived
	status   int      // of the answer
	accepted bool     // the answer made its event accepted
}

// receive judges one webhook and answers it.
func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) {
	v := visit{r: r, endpoint: r.endpoints.get(req.URL.Path)}
	v.At = r.config.Now()
	v.Path = v.endpoint.path
	reading := v.read(req.Header)
	v.enter()
	defer v.leave() // also when Observe or Answer panics

	body := bodies.Get().(*buffer)
	defer bodies.Put(body)
	if err := body.fill(req, r.config.MaxBody); err != nil {
		v.found(Unread, "%v", err)
		v.status = http.StatusBadRequest
		if errors.Is(err, errTooLarge) {
			v.status = http.StatusRequestEntityTooLarge
		}
		// net/http skips a short rest of the body and closes on a long one, in a
		// way that lets the sender read the answer.
		w.WriteHeader(v.status)
		return
	}
	if v.status = v.refuse(reading, req.Header, body.b); v.status != 0 {
		w.WriteHeader(v.status)
		return
	}
	v.judge(reading, body.b)
	v.overlap()
	script := r.script(v.endpoint) // before anyone is told, who may then change it for the next
	if r.config.Observe != nil {
		r.config.Observe(v.Arrival, body.b)
	}
	r.subscribers.send(req.Context(), v.Arrival)
	v.answer(w, req, script)
}

// enter opens the request in its stream.
func (v *visit) enter() {
	v.endpoint.arrive(v.At)
	v.stream = v.endpoint.key(v.assetHash())
	v.ticket, v.witness = v.r.streams.enter(v.stream)
}

// overlap decides whether the request met another one of its stream. That may
// take a moment, so it comes after what depends on the order of arrival.
func (v *visit) overlap() {
	w := v.witness
	if v.witness = nil; w != nil && v.r.streams.overlaps(v.stream, w) {
		v.found(Overlap, "another request of its stream was open")
	}
}

// leave closes it, as the last thing before net/http sends the answer: from
// then on the sender may open the stream's next.
func (v *visit) leave() {
	v.overlap() // of a refused request
	hungUp := v.Findings&(Abandoned|Unread) != 0
	v.r.streams.leave(v.stream, v.ticket, hungUp)
	v.endpoint.open.Add(-1)
	v.r.log.write(&v.Arrival, v.status)
	if v.accepted {
		v.r.accepted.add()
	}
	v.r.ended.add()
}

// assetHash tells no asset from any asset, the empty one included.
func (v *visit) assetHash() uint64 {
	if !v.HasAsset {
		return 0
	}
	return maphash.String(v.r.seed, v.Asset) | 1
}

// found counts a finding and, if it is a problem, keeps it as an example.
func (v *visit) found(f Finding, format string, args ...any) {
	v.Findings |= f
	v.endpoint.find(f)
	if f.Problem() {
		v.r.examples.add(f, v.Arrival, format, args...)
	}
}

// refuse judges what makes a request no webhook at all, and returns the status
// to refuse it with, or 0. Only the first reason counts.
func (v *visit) refuse(r reading, h http.Header, body []byte) int {
	if r.missing != "" {
		v.found(BadHeaders, "%s is missing, doubled or unreadable", r.missing)
	}
	if r.refuse {
		return http.StatusBadRequest
	}
	if off := v.At.Sub(time.Unix(r.timestamp, 0)); off > tolerance || off < -tolerance {
		v.found(BadTimestamp, "webhook-timestamp %s is unreadable or more than %v off", printable(h.Get(headerTimestamp)), tolerance)
		return http.StatusUnauthorized
	}
	keys := v.r.keyring(v.endpoint)
	if keys.empty() {
		v.found(Unverified, "")
		return 0
	}
	if err := keys.verify(h, body); err != nil {
		v.found(BadSignature, "%v", err)
		return http.StatusUnauthorized
	}
	return 0
}

// judge compares the request with all before it.
func (v *visit) judge(r reading, body []byte) {
	seed := v.r.seed
	v.event = v.endpoint.key(maphash.String(seed, v.ID))
	fingerprint := mix(mix(maphash.Bytes(seed, body), maphash.String(seed, v.Type)), mix(v.assetHash(), uint64(v.Seq)))

	if f := v.r.events.arrive(v.event, fingerprint); f != 0 {
		v.found(f&^Conflicting, "")
		if f&Conflicting != 0 {
			v.found(Conflicting, "same webhook-id as before, with another body, type, asset or seq")
		}
		return
	}
	v.endpoint.events.Add(1)
	if !r.seqOK {
		return
	}
	f, before := v.r.streams.arrive(v.stream, v.Seq, v.Prev, r.prevOK, v.r.config.MidStream)
	if before == 0 {
		v.endpoint.streams.Add(1)
	}
	if f != 0 {
		v.found(f, "highest seq before it in its stream is %d", before)
	}
}

// answer does what the path's Behaviour says.
func (v *visit) answer(w http.ResponseWriter, req *http.Request, script *script) {
	v.status = script.status(v.Arrival)
	if !script.wait(req.Context()) {
		v.found(Abandoned, "")
		v.status = http.StatusServiceUnavailable // for a Serve that stops: whoever hung up reads nothing
	}
	if v.status >= 200 && v.status <= 299 {
		v.accepted = v.r.events.accept(v.event)
		if v.accepted {
			v.endpoint.accepted.Add(1)
		}
	}
	v.r.write(w, script, v.status)
}

// count is receive in Light mode.
func (r *Receiver) count(w http.ResponseWriter, req *http.Request) {
	r.total.arrive(r.config.Now())
	defer func() {
		r.total.open.Add(-1)
		r.ended.add()
	}()
	body := bodies.Get().(*buffer)
	defer bodies.Put(body)
	if err := body.fill(req, r.config.MaxBody); err != nil {
		r.total.find(Unread)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	script := r.light.Load()
	status := script.status(Arrival{})
	if !script.wait(req.Context()) {
		r.total.find(Abandoned)
		status = http.StatusServiceUnavailable
	}
	r.write(w, script, status)
}

// write sends an answer without a body.
func (r *Receiver) write(w http.ResponseWriter, s *script, status int) {
	if status == Drop {
		panic(http.ErrAbortHandler) // net/http's way to close the connection
	}
	if s.slow() || r.subscribers.any() {
		// The deadline runs from the request; what it waited for must not eat it.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(r.config.WriteTimeout))
	}
	h := w.Header()
	maps.Copy(h, s.Header)
	w.WriteHeader(status)
}
