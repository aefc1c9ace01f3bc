// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podcert obtains and renews certificates for the podCertificate sources of projected volumes. It generates the private
// keys, in memory only; it signs no certificates.
//
//	keeper := podcert.New(issuer, podcert.Options{})
//	plugins := intree.Plugins(intree.Options{Certificates: keeper})
//	volumes, err := volume.New(volume.Options{Root: root, Plugins: plugins, Watcher: keeper})
//	...
//	go keeper.Run(ctx)
//
// A [Keeper] has one certificate for each podCertificate source that has requested one. It generates a key, has a
// [volume.CertificateIssuer] certify the key, and repeats this with a new key for each renewal. The Keeper is a [volume.Watcher]:
// it reports an issued certificate, so that volumes are updated at once.
//
// A certificate is renewed up to five minutes, at random, after the BeginRefreshAt of its issuer. Until then the old certificate
// is used, even if it has expired. Events report a certificate that is overdue by ten minutes, and one that has expired. As in
// the kubelet, a request that was denied or has failed is never repeated, and the pod keeps its files. After any other error the
// request is repeated after 1 s, doubling to 5 min.
//
// # Concurrency
//
// All methods may be called from any goroutine, Run once. Hooks are called from goroutines of Run, without a lock. A signer that
// does not respond delays only the pods that use it.
//
// # Errors
//
// A [*volume.CertificateRefusedError] is final. No error contains a key.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/podcertificate at 1.37.1. DIFFERENCES.md lists all differences, with these:
//
//   - A volume waits 3 s for its certificate before its set-up is retried.
//   - A request that is neither issued nor refused within 15 min is replaced by one with another key.
//
// Test kit: package volumetest has a Signer.
package podcert
