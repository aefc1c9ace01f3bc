// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/volume"
)

// MaxCertificates is how many certificates a [Keeper] has: one for each volume of all pods of a large node. Who asks for more gets an
// error.
const MaxCertificates = 10_000

// MaxPodCertificates is how many of them belong to one pod, so that no pod uses up those of the others.
const MaxPodCertificates = 64

// Options configure a [Keeper]. The zero value is for production.
type Options struct {
	Wait    time.Duration  // how long Certificate waits for one that was not issued yet; zero means 3 s
	Timeout time.Duration  // of one request; zero means 15 min
	Rand    func() float64 // nil means that of math/rand/v2
	Logger  *slog.Logger   // nil discards
	// Event is called for an event about a pod, as the kubelet records it. Nil: nobody is told.
	Event func(pod *corev1.Pod, eventType, reason, message string)
}

// Keeper has the certificates of pods. Make one with [New].
type Keeper struct {
	from  volume.CertificateIssuer
	opts  Options
	guard runonce.Guard
	wake  chan struct{}
	keys  chan struct{} // holds a token for each key that is being made

	mu       sync.Mutex // guards what follows
	records  map[source]*record
	changed  chan struct{} // closed when a request has ended, and replaced
	watchers map[int]func(kind, namespace, name string)
	watched  int // watchers so far
}

// New returns a Keeper without certificates. It starts nothing; see [Keeper.Run]. It panics if there is no issuer.
func New(from volume.CertificateIssuer, o Options) *Keeper {
	required.MustArgs("podcert.New", required.Arg{Name: "from", Value: from, Hint: "an *apiserver.Objects"})
	if o.Wait <= 0 {
		o.Wait = 3 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Minute
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Keeper{
		from: from, opts: o, wake: make(chan struct{}, 1), keys: make(chan struct{}, 2),
		records: map[source]*record{}, changed: make(chan struct{}), watchers: map[int]func(string, string, string){},
	}
}

// Certificate returns the certificate for the source at index of the projected volume name of a pod. The first call makes Run request the
// certificate and renew it until [Keeper.Forget].
func (k *Keeper) Certificate(ctx context.Context, pod *corev1.Pod, name string, index int) (volume.PodCertificate, error) {
	r, err := k.track(pod, name, index)
	if err != nil {
		return volume.PodCertificate{}, err
	}
	timer := time.NewTimer(k.opts.Wait)
	defer timer.Stop()
	for {
		k.mu.Lock()
		have, err := r.get()
		wait, changed := err != nil && r.err == nil, k.changed
		k.mu.Unlock()
		if !wait {
			return have, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return have, fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-timer.C:
			if k.guard.Err() != nil {
				return have, fmt.Errorf("%w: %w", err, runonce.NotRun("podcert.Keeper"))
			}
			return have, err
		}
	}
}

// track returns the record of a source, which there is from then on.
func (k *Keeper) track(pod *corev1.Pod, volume string, index int) (*record, error) {
	asked := projection(pod, volume, index)
	if asked == nil {
		return nil, fmt.Errorf("volume %.63q has no podCertificate source %d", volume, index)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at := source{string(pod.UID), volume, index}
	r := k.records[at]
	switch {
	case r != nil:
		r.pod, r.asked = pod, asked
		return r, nil
	case k.countOf(at.podUID) >= MaxPodCertificates:
		return nil, fmt.Errorf("volume %.63q, podCertificate source %d: the pod has %d certificates already", volume, index, MaxPodCertificates)
	case len(k.records) >= MaxCertificates:
		return nil, fmt.Errorf("there are %d certificates of pods already", MaxCertificates)
	}
	r = &record{pod: pod, asked: asked}
	k.records[at] = r
	k.guard.Require("podcert.Keeper", k.opts.Logger, nil)
	k.poke()
	return r, nil
}

// countOf returns how many certificates a pod has. The caller holds the lock.
func (k *Keeper) countOf(podUID string) (n int) {
	for at := range k.records {
		if at.podUID == podUID {
			n++
		}
	}
	return n
}

// projection returns a source of a volume, or nil.
func projection(pod *corev1.Pod, volume string, index int) *corev1.PodCertificateProjection {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Name == volume && v.Projected != nil && index >= 0 && index < len(v.Projected.Sources) {
			return v.Projected.Sources[index].PodCertificate
		}
	}
	return nil
}

// Forget drops the certificates of a pod, and keys with them. Requests that are under way end.
func (k *Keeper) Forget(podUID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for at, r := range k.records {
		if at.podUID != podUID {
			continue
		}
		if r.cancel != nil {
			r.cancel()
		}
		delete(k.records, at)
	}
}

// Watch calls changed for each certificate that was issued, until ctx ends: as a Watcher of package volume does.
func (k *Keeper) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	k.mu.Lock()
	k.watched++
	id := k.watched
	k.watchers[id] = changed
	k.mu.Unlock()
	<-ctx.Done()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.watchers, id)
	return ctx.Err()
}

// Count is a number of certificates that are in the same state.
type Count struct {
	Signer string
	State  string // fresh, not_yet_issued, overdue_for_refresh, expired, denied or failed
}

// Counts returns how many certificates there are, as the kubelet's metric kubelet_podcertificate_states has it.
func (k *Keeper) Counts() map[Count]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := map[Count]int{}
	for _, r := range k.records {
		counts[Count{r.asked.SignerName, r.phase(time.Now())}]++
	}
	return counts
}

// poke lets Run look at what is due.
func (k *Keeper) poke() {
	sleep.Wake(k.wake)
}
