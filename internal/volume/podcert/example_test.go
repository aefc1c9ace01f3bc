// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/podcert"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

func ExampleNew() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/mtls", KeyType: "ECDSAP256", CredentialBundlePath: "bundle.pem"},
		}}},
	}}}}}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "1"

	keeper := podcert.New(&volumetest.Signer{}, podcert.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = keeper.Run(ctx) })
	certificate, err := keeper.Certificate(ctx, pod, "tls", 0)
	key, _ := pem.Decode(certificate.Key)
	chain, _ := pem.Decode(certificate.Chain)
	fmt.Println(err, key.Type, chain.Type)
	cancel()
	wg.Wait()
	// Output: <nil> PRIVATE KEY CERTIFICATE
}
