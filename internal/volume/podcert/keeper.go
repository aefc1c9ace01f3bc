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

// MaxCertificates is the maximum number of certificates of a [Keeper]: one for each volume of all pods of a large node. Beyond
// it, Certificate returns an error.
const MaxCertificates = 10_000

// MaxPodCertificates is the maximum number of certificates of one pod, so that one pod cannot use up MaxCertificates.
const MaxPodCertificates = 64

// Options configure a [Keeper]. The zero value is for production.
type Options struct {
	Wait    time.Duration  // maximum time that Certificate waits for an issued certificate; zero means 3 s
	Timeout time.Duration  // timeout of one request; zero means 15 min
	Rand    func() float64 // random numbers in [0,1); nil means rand.Float64 of math/rand/v2
	Logger  *slog.Logger   // nil discards
	// Event records an event about a pod, as the kubelet does. Nil discards.
	Event func(pod *corev1.Pod, eventType, reason, message string)
}

// Keeper obtains and renews the certificates of pods. Create it with [New].
type Keeper struct {
	from     volume.CertificateIssuer
	opts     Options
	guard    runonce.Guard
	wake     chan struct{}
	keySlots chan struct{} // semaphore: limits concurrent key generations

	mu       sync.Mutex // guards the fields below
	records  map[source]*certRecord
	changed  chan struct{} // closed and replaced when a request has completed
	watchers map[int]func(kind, namespace, name string)
	watched  int // key of the last watcher
}

// New returns a Keeper for pod certificates. from is the issuer of the certificates; New panics if from is nil. New starts
// no goroutine; call [Keeper.Run].
func New(from volume.CertificateIssuer, opts Options) *Keeper {
	required.MustArgs("podcert.New", required.Arg{Name: "from", Value: from, Hint: "an *apiserver.Objects"})
	if opts.Wait <= 0 {
		opts.Wait = 3 * time.Second
	}
	if opts.Timeout <= 0 {
		opts.Timeout = 15 * time.Minute
	}
	if opts.Rand == nil {
		opts.Rand = rand.Float64
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Keeper{
		from: from, opts: opts, wake: make(chan struct{}, 1), keySlots: make(chan struct{}, 2),
		records: map[source]*certRecord{}, changed: make(chan struct{}), watchers: map[int]func(string, string, string){},
	}
}

// Certificate returns the certificate for the source with this index of a projected volume. The first call makes Run request
// the certificate, and renew it until [Keeper.Forget]. Certificate waits at most Options.Wait for the first certificate, and
// then returns an error.
func (k *Keeper) Certificate(ctx context.Context, pod *corev1.Pod, volumeName string, index int) (volume.PodCertificate, error) {
	r, err := k.trackSource(pod, volumeName, index)
	if err != nil {
		return volume.PodCertificate{}, err
	}
	timer := time.NewTimer(k.opts.Wait)
	defer timer.Stop()
	for {
		k.mu.Lock()
		have, err := r.currentCertificate()
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

// trackSource returns the certificate record of the source, and creates it at the first call. Too many certificates are an
// error.
func (k *Keeper) trackSource(pod *corev1.Pod, volume string, index int) (*certRecord, error) {
	asked := findProjection(pod, volume, index)
	if asked == nil {
		return nil, fmt.Errorf("volume %.63q has no podCertificate source %d", volume, index)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at := source{string(pod.UID), volume, index}
	r := k.records[at]
	switch {
	case r != nil:
		r.pod, r.projection = pod, asked
		return r, nil
	case k.countOf(at.podUID) >= MaxPodCertificates:
		return nil, fmt.Errorf("volume %.63q, podCertificate source %d: the pod has %d certificates already", volume, index, MaxPodCertificates)
	case len(k.records) >= MaxCertificates:
		return nil, fmt.Errorf("there are %d certificates of pods already", MaxCertificates)
	}
	r = &certRecord{pod: pod, projection: asked}
	k.records[at] = r
	k.guard.Require("podcert.Keeper", k.opts.Logger, nil)
	k.signal()
	return r, nil
}

// countOf returns the number of certificates of the pod with UID podUID. The caller holds k.mu.
func (k *Keeper) countOf(podUID string) (n int) {
	for at := range k.records {
		if at.podUID == podUID {
			n++
		}
	}
	return n
}

// findProjection returns a podCertificate source of pod: the source with this index in the projected volume called volume.
// It returns nil if this volume or source does not exist.
func findProjection(pod *corev1.Pod, volume string, index int) *corev1.PodCertificateProjection {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Name == volume && v.Projected != nil && index >= 0 && index < len(v.Projected.Sources) {
			return v.Projected.Sources[index].PodCertificate
		}
	}
	return nil
}

// Forget removes the keys and certificates of the pod with UID podUID, and cancels the requests for them.
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

// Watch calls the function changed for each issued certificate until ctx ends, and returns the error of ctx. kind is
// volume.KindPodCertificate; namespace and name belong to the pod. It implements [volume.Watcher].
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

// CertificateState has the labels of the kubelet's metric kubelet_podcertificate_states: the signer of a certificate, and its
// state.
type CertificateState struct {
	Signer string
	State  string // fresh, not_yet_issued, overdue_for_refresh, expired, denied or failed
}

// CountStates returns the number of certificates by signer and state, for the kubelet's metric kubelet_podcertificate_states.
func (k *Keeper) CountStates() map[CertificateState]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := map[CertificateState]int{}
	for _, r := range k.records {
		counts[CertificateState{r.projection.SignerName, r.metricState(time.Now())}]++
	}
	return counts
}

// signal makes Run check for due requests.
func (k *Keeper) signal() {
	sleep.Wake(k.wake)
}
