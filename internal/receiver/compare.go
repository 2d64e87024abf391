package receiver

import "hash/maphash"

// Lost returns, of the ids that a producer committed for each path, those that
// were never answered 2xx, in the order given. Empty: nothing is lost.
func (r *Receiver) Lost(committed map[string][]string) map[string][]string {
	lost := make(map[string][]string)
	for path, ids := range committed {
		e := r.endpoints.look(path)
		for _, id := range ids {
			if e != nil {
				if _, answered := r.events.state(e.key(maphash.String(r.seed, id))); answered {
					continue
				}
			}
			lost[path] = append(lost[path], id)
		}
	}
	return lost
}

// Phantoms returns for each path how many events arrived that no producer
// committed. Only hashes are kept, so it counts them and cannot name them.
// Paths without a phantom are left out. Empty: every arrival was committed.
func (r *Receiver) Phantoms(committed map[string][]string) map[string]int64 {
	phantoms := make(map[string]int64)
	for _, e := range r.endpoints.all() {
		known := make(map[uint64]struct{})
		for _, id := range committed[e.path] {
			key := e.key(maphash.String(r.seed, id))
			if arrived, _ := r.events.state(key); arrived {
				known[key] = struct{}{}
			}
		}
		if n := e.counters.events.Load() - int64(len(known)); n > 0 {
			phantoms[e.path] = n
		}
	}
	return phantoms
}
