// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/volume"
)

// Run asks for certificates and renews them until ctx ends. It is called once, and returns when all that it has started has
// returned.
func (k *Keeper) Run(ctx context.Context) error {
	if err := k.guard.Begin(); err != nil {
		return err
	}
	defer k.guard.End()
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-timer.C:
		}
		requests, events, wake := k.due(ctx, time.Now())
		for _, e := range events {
			k.event(e.pod, e.reason, e.message)
		}
		for _, q := range requests {
			wg.Go(func() {
				defer q.cancel()
				k.ask(q)
			})
		}
		if !wake.IsZero() {
			timer.Reset(max(time.Until(wake), 0))
		}
	}
}

// event is an event about a pod.
type event struct {
	pod             *corev1.Pod
	reason, message string
}

// request is a request that is under way.
type request struct {
	ctx    context.Context //nolint:containedctx // it ends with the record
	cancel context.CancelFunc
	record *record
	pod    *corev1.Pod
	asked  *corev1.PodCertificateProjection
}

// due returns what is to be asked for and told now, and when something is that is not yet.
func (k *Keeper) due(ctx context.Context, now time.Time) (requests []request, events []event, wake time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		reasons, next := r.warn(now)
		wake = sleep.Earlier(wake, next)
		for _, reason := range reasons {
			events = append(events, event{r.pod, reason, warnings()[reason]})
		}
		switch at, ever := r.next(); {
		case !ever:
		case at.After(now):
			wake = sleep.Earlier(wake, at)
		default:
			q := request{record: r, pod: r.pod, asked: r.asked}
			q.ctx, q.cancel = context.WithTimeout(ctx, k.opts.Timeout)
			r.cancel = q.cancel
			requests = append(requests, q)
		}
	}
	return requests, events, wake
}

// warnings returns the messages of events by their reasons, in the words of the kubelet.
func warnings() map[string]string {
	return map[string]string{ReasonOverdue: "PodCertificate refresh overdue", ReasonExpired: "PodCertificate expired"}
}

// ask makes one request, and tells what has come of it.
func (k *Keeper) ask(q request) {
	key, issued, err := k.issue(q.ctx, q.pod, q.asked)
	if errors.Is(q.ctx.Err(), context.Canceled) { // the agent ends, or the pod does
		return
	}
	k.mu.Lock()
	q.record.answer(key, issued, err, k.opts.Rand(), time.Now())
	close(k.changed)
	k.changed = make(chan struct{})
	watchers := slices.Collect(maps.Values(k.watchers))
	k.mu.Unlock()
	k.poke()
	if err != nil {
		k.tell(q.pod, q.asked, err)
		return
	}
	for _, changed := range watchers {
		changed(volume.KindPodCertificate, q.pod.Namespace, q.pod.Name)
	}
}

// issue makes a key and has it certified.
func (k *Keeper) issue(ctx context.Context, pod *corev1.Pod, p *corev1.PodCertificateProjection) (key []byte, issued volume.IssuedCertificate, err error) {
	select {
	case k.keys <- struct{}{}:
	case <-ctx.Done():
		return nil, issued, ctx.Err()
	}
	key, stub, err := GenerateKey(p.KeyType)
	<-k.keys
	if err != nil {
		return nil, issued, err
	}
	issued, err = k.from.Issue(ctx, volume.CertificateRequest{
		Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), ServiceAccount: pod.Spec.ServiceAccountName,
		Signer: p.SignerName, MaxSeconds: p.MaxExpirationSeconds, Stub: stub, Annotations: maps.Clone(p.UserAnnotations),
	})
	if err == nil {
		issued.Chain, err = CleanChain(issued.Chain)
	}
	return key, issued, err
}

// tell reports a request that has come to nothing. One that was refused is an event.
func (k *Keeper) tell(pod *corev1.Pod, p *corev1.PodCertificateProjection, err error) {
	k.opts.Logger.Warn("pod certificate", "pod", pod.Namespace+"/"+pod.Name, "signer", p.SignerName, "error", err)
	if refused, ok := errors.AsType[*volume.CertificateRefusedError](err); ok {
		k.event(pod, refusalOf(refused).condition, fmt.Sprintf("PodCertificateRequest for signer %s was %s, reason=%q, message=%q",
			p.SignerName, refusalOf(refused).verb, refused.Reason, refused.Message))
	}
}

func (k *Keeper) event(pod *corev1.Pod, reason, message string) {
	if k.opts.Event != nil {
		k.opts.Event(pod, corev1.EventTypeWarning, reason, message)
	}
}
