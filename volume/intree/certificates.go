// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/podcert"
	"github.com/seed81659283/nodeagent/volume"
)

// CertificateOptions configure a [CertificateKeeper]. The zero value is for production.
type CertificateOptions struct {
	Wait    time.Duration  // maximum time that Certificate waits for an issued certificate; zero means 3 s
	Timeout time.Duration  // timeout of one request; zero means 15 min
	Rand    func() float64 // random numbers in [0,1); nil means rand.Float64 of math/rand/v2
	Logger  *slog.Logger   // nil discards
	// Event records an event about a pod, as the kubelet does. Nil discards.
	Event func(pod *corev1.Pod, eventType, reason, message string)
}

// CertificateKeeper generates the keys of pods, has an issuer certify them, and renews the certificates in time. It implements
// [Certificates] and [volume.Watcher]: it reports an issued certificate, so that the volumes that show it are updated at once.
type CertificateKeeper struct {
	keeper *podcert.Keeper
}

var (
	_ Certificates   = (*CertificateKeeper)(nil)
	_ forgetter      = (*CertificateKeeper)(nil)
	_ volume.Watcher = (*CertificateKeeper)(nil)
)

// NewCertificateKeeper returns a keeper without certificates. It starts no goroutine: see [CertificateKeeper.Run]. It panics if
// from is nil.
func NewCertificateKeeper(from volume.CertificateIssuer, opts CertificateOptions) *CertificateKeeper {
	return &CertificateKeeper{keeper: podcert.New(from, podcert.Options(opts))}
}

// Run requests and renews certificates until ctx ends. It is called once, and returns after its requests have returned.
func (k *CertificateKeeper) Run(ctx context.Context) error { return k.keeper.Run(ctx) }

// Certificate returns the certificate for the source at index source of the projected volume name. The first call makes Run
// request it. It waits up to CertificateOptions.Wait, and then returns the last error.
func (k *CertificateKeeper) Certificate(ctx context.Context, pod *corev1.Pod, name string, source int) (volume.PodCertificate, error) {
	return k.keeper.Certificate(ctx, pod, name, source)
}

// Forget drops the certificates and keys of a pod, and cancels its requests.
func (k *CertificateKeeper) Forget(podUID string) { k.keeper.Forget(podUID) }

// Watch calls changed for each certificate that is issued, until ctx ends.
func (k *CertificateKeeper) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	return k.keeper.Watch(ctx, changed)
}
