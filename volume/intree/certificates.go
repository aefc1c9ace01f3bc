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

// CertificateKeeper generates the keys of pods, requests certificates for them from an issuer, and renews the certificates before
// they expire. It implements [Certificates]. It also implements [volume.Watcher]: when a certificate is issued, the volumes that
// show it are updated at once.
type CertificateKeeper struct {
	keeper *podcert.Keeper
}

var (
	_ Certificates   = (*CertificateKeeper)(nil)
	_ forgetter      = (*CertificateKeeper)(nil)
	_ volume.Watcher = (*CertificateKeeper)(nil)
)

// NewCertificateKeeper returns a keeper that requests its certificates from the given issuer. It panics if the issuer is
// nil. It starts no goroutine: the caller must call [CertificateKeeper.Run].
func NewCertificateKeeper(from volume.CertificateIssuer, opts CertificateOptions) *CertificateKeeper {
	return &CertificateKeeper{keeper: podcert.New(from, podcert.Options(opts))}
}

// Run requests and renews the certificates until ctx ends. It returns when its requests have returned. Run must be called
// only once.
func (k *CertificateKeeper) Run(ctx context.Context) error { return k.keeper.Run(ctx) }

// Certificate returns the certificate for a source of a projected volume. name is the name of the volume, source the index
// of the source. The first call makes Run request the certificate. Certificate waits up to CertificateOptions.Wait, and then
// returns the last error.
func (k *CertificateKeeper) Certificate(ctx context.Context, pod *corev1.Pod, name string, source int) (volume.PodCertificate, error) {
	return k.keeper.Certificate(ctx, pod, name, source)
}

// Forget removes the keys and certificates of the pod with UID podUID, and cancels requests for them.
func (k *CertificateKeeper) Forget(podUID string) { k.keeper.Forget(podUID) }

// Watch calls changed for each certificate that is issued, until ctx ends. The arguments are the kind
// volume.KindPodCertificate, and the namespace and name of the pod.
func (k *CertificateKeeper) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	return k.keeper.Watch(ctx, changed)
}
