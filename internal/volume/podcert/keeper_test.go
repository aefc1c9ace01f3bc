// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/internal/volume/podcert"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// node is a running Keeper with its signer and a pod.
type node struct {
	t      *testing.T
	signer *volumetest.Signer
	keeper *podcert.Keeper
	pod    *corev1.Pod

	mu       sync.Mutex // guards the fields below
	events   []string
	notified []string
}

func startKeeper(t *testing.T, signer *volumetest.Signer, random float64) *node {
	t.Helper()
	n := &node{t: t, signer: signer}
	n.pod = podtest.Pod(t, `{serviceAccountName: app, volumes: [{name: v, projected: {sources: [{secret: {name: s}},
		{podCertificate: {signerName: example.com/x, keyType: ED25519, keyPath: k, userAnnotations: {example.com/a: b}}}]}}]}`)
	n.keeper = podcert.New(signer, podcert.Options{
		Rand: func() float64 { return random },
		Event: func(_ *corev1.Pod, typ, reason, message string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, typ+" "+reason+": "+message)
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, n.keeper.Run(ctx)) })
	wg.Go(func() {
		assert.ErrorIs(t, n.keeper.Watch(ctx, func(kind, namespace, name string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.notified = append(n.notified, kind+" "+namespace+"/"+name)
		}), context.Canceled)
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	synctest.Wait() // until Watch is called
	return n
}

func (n *node) certificate() (volume.PodCertificate, error) {
	return n.keeper.Certificate(n.t.Context(), n.pod, "v", 1)
}

func (n *node) requireState(want string) {
	n.t.Helper()
	require.Equal(n.t, map[podcert.CertificateState]int{{Signer: "example.com/x", State: want}: 1}, n.keeper.CountStates())
}

// takeEvents returns the recorded events, and clears them.
func (n *node) takeEvents() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	events := n.events
	n.events = nil
	return events
}

// Each renewal creates a new key, and notifies the watchers.
func TestCertificateRenewedWithNewKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startKeeper(t, &volumetest.Signer{}, 0.5)
		first, err := n.certificate()
		require.NoError(t, err)
		_, err = tls.X509KeyPair(first.Chain, first.Key)
		require.NoError(t, err)
		require.Len(t, n.signer.Requests(), 1)
		r := n.signer.Requests()[0]
		r.StubPKCS10Request = nil
		assert.Equal(t, volume.CertificateRequest{
			Namespace: "default", Pod: "web", PodUID: string(n.pod.UID), ServiceAccount: "app", Signer: "example.com/x",
			Annotations: map[string]string{"example.com/a": "b"},
		}, r)
		n.requireState("fresh")

		// The certificate is valid for 24 h. The renewal starts after four fifths of this time, up to 5 min later.
		time.Sleep(24*time.Hour*4/5 + 149*time.Second)
		again, err := n.certificate()
		require.NoError(t, err)
		assert.Equal(t, first, again)
		time.Sleep(2 * time.Second)
		second, err := n.certificate()
		require.NoError(t, err)
		assert.NotEqual(t, first.Key, second.Key)
		_, err = tls.X509KeyPair(second.Chain, second.Key)
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{"PodCertificate default/web", "PodCertificate default/web"}, n.notified)
		assert.Empty(t, n.takeEvents())

		n.keeper.Forget(string(n.pod.UID))
		assert.Empty(t, n.keeper.CountStates())
		time.Sleep(48 * time.Hour)
		assert.Len(t, n.signer.Requests(), 2, "no renewal after Forget")
	})
}

// The certificate is used even after its expiry. Overdue and expired certificates are reported once each.
func TestOverdueCertificateKeptAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		n := startKeeper(t, &volumetest.Signer{Fault: func(context.Context, volume.CertificateRequest) error {
			if broken.Load() {
				return errors.New("the signer is away")
			}
			return nil
		}}, 0)
		first, err := n.certificate()
		require.NoError(t, err)

		broken.Store(true)
		begin := 24 * time.Hour * 4 / 5
		time.Sleep(begin + 9*time.Minute)
		n.requireState("fresh")
		time.Sleep(2 * time.Minute)
		n.requireState("overdue_for_refresh")
		assert.Equal(t, []string{"Warning CertificateOverdueForRefresh: PodCertificate refresh overdue"}, n.takeEvents())
		time.Sleep(24*time.Hour/5 - 12*time.Minute)
		assert.Empty(t, n.takeEvents())
		time.Sleep(2 * time.Minute)
		n.requireState("expired")
		assert.Equal(t, []string{"Warning CertificateExpired: PodCertificate expired"}, n.takeEvents())
		last, err := n.certificate()
		require.NoError(t, err)
		assert.Equal(t, first, last)
		assert.Less(t, len(n.signer.Requests()), 80, "failed renewals have a back-off")

		broken.Store(false)
		time.Sleep(6 * time.Minute)
		n.requireState("fresh")
		assert.Empty(t, n.takeEvents())
	})
}

func TestRefusedRequestNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		err    volume.CertificateRefusedError
		state  string
		text   string
		events []string
	}{
		"denied": {
			volume.CertificateRefusedError{Denied: true, Reason: "Policy", Message: "no\nway"},
			"denied",
			`PodCertificateRequest was permanently denied: reason="Policy" message="no\nway"`,
			[]string{`Warning Denied: PodCertificateRequest for signer example.com/x was denied, reason="Policy", message="no\nway"`},
		},
		"failed": {
			volume.CertificateRefusedError{Reason: "R"},
			"failed", `PodCertificateRequest was permanently failed: reason="R" message=""`,
			[]string{`Warning Failed: PodCertificateRequest for signer example.com/x was failed, reason="R", message=""`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startKeeper(t, &volumetest.Signer{Fault: func(context.Context, volume.CertificateRequest) error { return fmt.Errorf("request r1: %w", &c.err) }}, 0)
				_, err := n.certificate()
				require.ErrorContains(t, err, c.text)
				time.Sleep(24 * time.Hour)
				_, err = n.certificate()
				require.ErrorContains(t, err, c.text)
				assert.Len(t, n.signer.Requests(), 1)
				assert.Equal(t, c.events, n.takeEvents())
				n.requireState(c.state)
			})
		})
	}
}

// If a signer hangs, Certificate returns after 3 s for its pods. Pods of other signers do not wait.
func TestHungSignerDelaysOnlyItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startKeeper(t, &volumetest.Signer{Fault: func(ctx context.Context, r volume.CertificateRequest) error {
			if r.Signer == "example.com/x" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}, 0)
		began := time.Now()
		_, err := n.certificate()
		require.EqualError(t, err, "credential bundle is not issued yet")
		assert.Equal(t, 3*time.Second, time.Since(began))
		other := n.pod.DeepCopy()
		other.UID, other.Spec.Volumes[0].Projected.Sources[1].PodCertificate.SignerName = "other", "example.com/y"
		_, err = n.keeper.Certificate(t.Context(), other, "v", 1)
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = n.keeper.Certificate(ctx, n.pod, "v", 1)
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(16 * time.Minute)
		assert.Len(t, n.signer.Requests(), 3, "after 15 min the request is repeated")
		_, err = n.certificate()
		require.ErrorContains(t, err, "credential bundle is not issued yet: context deadline exceeded")
		n.keeper.Forget(string(n.pod.UID))
		time.Sleep(time.Hour)
		assert.Len(t, n.signer.Requests(), 3)
	})
}

// A signer whose certificates are due for renewal at once gets one request a minute.
func TestEarlyRenewalNotRepeatedInLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startKeeper(t, &volumetest.Signer{Lifetime: time.Nanosecond}, 0)
		time.Sleep(time.Second)
		_, err := n.certificate()
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.InDelta(t, 60, len(n.signer.Requests()), 2)
	})
}

// A pod with thousands of sources leaves capacity for other pods.
func TestKeeperLimitsCertificatesPerPod(t *testing.T) {
	k := podcert.New(&volumetest.Signer{}, podcert.Options{Wait: time.Nanosecond})
	many := podtest.Pod(t, "{volumes: [{name: v, projected: {sources: []}}]}")
	for range 2 * podcert.MaxCertificates {
		many.Spec.Volumes[0].Projected.Sources = append(many.Spec.Volumes[0].Projected.Sources, corev1.VolumeProjection{
			PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/x"},
		})
	}
	for i := range many.Spec.Volumes[0].Projected.Sources {
		_, err := k.Certificate(t.Context(), many, "v", i)
		if i >= podcert.MaxPodCertificates {
			require.EqualError(t, err, fmt.Sprintf(`volume "v", podCertificate source %d: the pod has 64 certificates already`, i))
		}
	}
	other := many.DeepCopy()
	other.UID = "other"
	_, err := k.Certificate(t.Context(), other, "v", 0)
	require.ErrorContains(t, err, "Keeper.Run is not running", "the certificate of another pod is not refused")
	require.Equal(t, map[podcert.CertificateState]int{{Signer: "example.com/x", State: "not_yet_issued"}: 65}, k.CountStates())
}

func TestKeeperReportsMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startKeeper(t, &volumetest.Signer{}, 0)
		synctest.Wait()
		require.Error(t, n.keeper.Run(t.Context()), "a second Run fails")
		for _, at := range []struct {
			volume string
			index  int
		}{{"w", 1}, {"v", 0}, {"v", 2}, {"v", -1}} {
			_, err := n.keeper.Certificate(t.Context(), n.pod, at.volume, at.index)
			require.ErrorContains(t, err, "has no podCertificate source")
		}
		_, err := podcert.New(&volumetest.Signer{}, podcert.Options{}).Certificate(t.Context(), n.pod, "v", 1)
		require.ErrorContains(t, err, "podcert.Keeper.Run is not running")
	})
	assert.Panics(t, func() { podcert.New(nil, podcert.Options{}) })
}
