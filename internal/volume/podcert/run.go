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

// Run requests and renews the certificates until ctx ends, and waits for its running requests. A second call returns an
// error.
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
		requests, events, wake := k.collectDue(ctx, time.Now())
		for _, e := range events {
			k.recordEvent(e.pod, e.reason, e.message)
		}
		for _, q := range requests {
			wg.Go(func() {
				defer q.cancel()
				k.makeRequest(q)
			})
		}
		if !wake.IsZero() {
			timer.Reset(max(time.Until(wake), 0))
		}
	}
}

// event is a warning event about a pod.
type event struct {
	pod             *corev1.Pod
	reason, message string
}

// request is a request for a certificate, which is due or running.
type request struct {
	ctx        context.Context //nolint:containedctx // canceled when the pod is forgotten
	cancel     context.CancelFunc
	record     *certRecord
	pod        *corev1.Pod
	projection *corev1.PodCertificateProjection
}

// collectDue returns the requests to send and the events to record now, and the time of the next one or zero.
func (k *Keeper) collectDue(ctx context.Context, now time.Time) (requests []request, events []event, wake time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		reasons, next := r.dueWarnings(now)
		wake = sleep.Earlier(wake, next)
		for _, reason := range reasons {
			events = append(events, event{r.pod, reason, eventMessages()[reason]})
		}
		switch at, needed := r.nextRequest(); {
		case !needed:
		case at.After(now):
			wake = sleep.Earlier(wake, at)
		default:
			q := request{record: r, pod: r.pod, projection: r.projection}
			q.ctx, q.cancel = context.WithTimeout(ctx, k.opts.Timeout)
			r.cancel = q.cancel
			requests = append(requests, q)
		}
	}
	return requests, events, wake
}

// eventMessages returns the kubelet's messages of the warning events, by reason.
func eventMessages() map[string]string {
	return map[string]string{ReasonOverdue: "PodCertificate refresh overdue", ReasonExpired: "PodCertificate expired"}
}

// makeRequest requests a certificate for a new key, records the result, and calls the functions passed to [Keeper.Watch].
func (k *Keeper) makeRequest(req request) {
	key, issued, err := k.issueCertificate(req.ctx, req.pod, req.projection)
	if errors.Is(req.ctx.Err(), context.Canceled) { // Run is stopping, or the pod was forgotten
		return
	}
	k.mu.Lock()
	req.record.applyResult(key, issued, err, k.opts.Rand(), time.Now())
	close(k.changed)
	k.changed = make(chan struct{})
	watchers := slices.Collect(maps.Values(k.watchers))
	k.mu.Unlock()
	k.signal()
	if err != nil {
		k.reportFailure(req.pod, req.projection, err)
		return
	}
	for _, changed := range watchers {
		changed(volume.KindPodCertificate, req.pod.Namespace, req.pod.Name)
	}
}

// issueCertificate generates a key and requests a certificate for it, for a podCertificate source of pod.
func (k *Keeper) issueCertificate(ctx context.Context, pod *corev1.Pod, projection *corev1.PodCertificateProjection) (key []byte, issued volume.IssuedCertificate, err error) {
	select {
	// Limits the keys that are generated in parallel.
	case k.keySlots <- struct{}{}:
	case <-ctx.Done():
		return nil, issued, ctx.Err()
	}
	key, stub, err := GenerateKey(projection.KeyType)
	<-k.keySlots
	if err != nil {
		return nil, issued, err
	}
	issued, err = k.from.Issue(ctx, volume.CertificateRequest{
		Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), ServiceAccount: pod.Spec.ServiceAccountName,
		Signer: projection.SignerName, MaxExpirationSeconds: projection.MaxExpirationSeconds, StubPKCS10Request: stub, Annotations: maps.Clone(projection.UserAnnotations),
	})
	if err == nil {
		issued.Chain, err = NormalizeChain(issued.Chain)
	}
	return key, issued, err
}

// reportFailure logs err, the error of a certificate request. If the request was refused, it also records an event about
// pod.
func (k *Keeper) reportFailure(pod *corev1.Pod, projection *corev1.PodCertificateProjection, err error) {
	k.opts.Logger.Warn("pod certificate", "pod", pod.Namespace+"/"+pod.Name, "signer", projection.SignerName, "error", err)
	if refused, ok := errors.AsType[*volume.CertificateRefusedError](err); ok {
		k.recordEvent(pod, refusalTextOf(refused).condition, fmt.Sprintf("PodCertificateRequest for signer %s was %s, reason=%q, message=%q",
			projection.SignerName, refusalTextOf(refused).verb, refused.Reason, refused.Message))
	}
}

func (k *Keeper) recordEvent(pod *corev1.Pod, reason, message string) {
	if k.opts.Event != nil {
		k.opts.Event(pod, corev1.EventTypeWarning, reason, message)
	}
}
