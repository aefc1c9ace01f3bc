// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// The volume types that a node supports.
func ExamplePlugins_names() {
	plugins := intree.Plugins(intree.Options{})
	delete(plugins, volume.HostPath) // pods cannot see the files of the node
	for _, name := range []string{
		volume.EmptyDir, volume.HostPath, volume.ConfigMap, volume.Secret, volume.DownwardAPI, volume.Projected, volume.NFS, volume.GitRepo,
		volume.ISCSI, volume.FC, volume.CSI, volume.Local,
	} {
		if plugins[name] == nil {
			fmt.Println(name, "is refused")
		}
	}
	// Output:
	// kubernetes.io/host-path is refused
	// kubernetes.io/iscsi is refused
	// kubernetes.io/fc is refused
	// kubernetes.io/csi is refused
}

// Projected volumes without an API server: tokens, trust bundles and certificates have custom sources.
func ExampleNewCertificateKeeper() {
	signer, bundles := &volumetest.Signer{}, &volumetest.TrustBundles{}
	ca, err := signer.TrustBundle("example.com:x:ca", "example.com/x")
	if err != nil {
		fmt.Println(err)
		return
	}
	bundles.Put(ca)
	keeper := intree.NewCertificateKeeper(signer, intree.CertificateOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = keeper.Run(ctx) }()

	plugins := intree.Plugins(intree.Options{
		Tokens: volume.TokenIssuerFunc(func(_ context.Context, r volume.TokenRequest) (volume.Token, error) {
			return volume.Token{Value: "token of " + r.ServiceAccount, Expires: time.Now().Add(time.Hour)}, nil
		}),
		TrustBundles: bundles,
		Certificates: keeper,
	})
	watcher := volume.JoinWatchers(bundles, keeper) // for volume.Options, together with plugins
	fmt.Println(len(plugins), watcher != nil)

	pod := &corev1.Pod{}
	pod.Name, pod.UID = "web", "u1"
	pod.Spec.Volumes = []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/x", KeyType: "ED25519"}}},
	}}}}
	certificate, err := keeper.Certificate(ctx, pod, "tls", 0)
	fmt.Println(len(certificate.Key) > 0, err, signer.Requests()[0].Pod)
	// Output:
	// 9 true
	// true <nil> web
}

func ExamplePlugins() {
	plugins := intree.Plugins(intree.Options{Objects: objects.NewDir("/etc/agent/objects")})
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		fmt.Println(name)
	}
	root, _ := os.MkdirTemp("", "pods")
	defer os.RemoveAll(root)
	_, err := volume.New(volume.Options{Root: root, Plugins: plugins})
	fmt.Println(err)
	// Output:
	// kubernetes.io/configmap
	// kubernetes.io/downward-api
	// kubernetes.io/empty-dir
	// kubernetes.io/git-repo
	// kubernetes.io/host-path
	// kubernetes.io/local-volume
	// kubernetes.io/nfs
	// kubernetes.io/projected
	// kubernetes.io/secret
	// <nil>
}
