// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/certtest"
)

// A node that has nothing but a bootstrap token gets its client certificate, and with that one to serve with.
func ExampleNewClient() {
	cluster, err := certtest.Start(certtest.Options{}) // in memory; a real one is found by its kubeconfig alone
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	dir, err := os.MkdirTemp("", "cert")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	bootstrap := filepath.Join(dir, "bootstrap-kubelet.conf")
	if err := os.WriteFile(bootstrap, cluster.Bootstrap(), 0o600); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	issued := make(chan *x509.Certificate, 1)
	hooks := cert.Hooks{Rotated: func(_, current *x509.Certificate) { issued <- current }}
	client, err := cert.NewClient(cert.ClientOptions{
		NodeName: "n1", Kubeconfig: filepath.Join(dir, "kubelet.conf"), BootstrapKubeconfig: bootstrap,
		Dir: filepath.Join(dir, "pki"), Dial: cluster.Dial, Hooks: hooks,
	})
	if err != nil {
		panic(err)
	}
	go client.Run(ctx)
	fmt.Println((<-issued).Subject)

	serving, err := cert.NewServing(client.Config(), cert.ServingOptions{
		NodeName: "n1", Dir: filepath.Join(dir, "pki"), Hooks: hooks, Addresses: func() []corev1.NodeAddress {
			return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "n1"}}
		},
	})
	if err != nil {
		panic(err)
	}
	go serving.Run(ctx) // a tls.Config has its GetCertificate
	leaf := <-issued
	fmt.Println(leaf.IPAddresses, leaf.DNSNames)
	// Output:
	// CN=system:node:n1,O=system:nodes
	// [10.0.0.1] [n1]
}

// What decides can be used alone.
func ExampleStep() {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	wanted := cert.ClientTemplate("n1")
	leaf := &x509.Certificate{NotBefore: now.Add(-50 * time.Hour), NotAfter: now.Add(50 * time.Hour)}
	leaf.Subject.CommonName, leaf.Subject.Organization = "system:node:n1", []string{"system:nodes"}
	fmt.Println(cert.Step(cert.State{Template: &wanted, Leaf: leaf}, now).Do)
	fmt.Println(cert.Step(cert.State{Template: &wanted, Leaf: leaf}, now.Add(20*time.Hour)).Do)
	fmt.Println(cert.Usages(certificatesv1.KubeletServingSignerName, nil))
	// Output:
	// wait
	// request
	// [digital signature server auth]
}

// An error names the file, and the field where the file has one that is wrong.
func ExampleLoadKubeconfig() {
	config, err := cert.LoadKubeconfig("/etc/kubernetes/none.conf")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := cert.CheckCredentials(config, "n1", time.Now()); err != nil {
		fmt.Println(err) // a certificate that has expired, or of another node
	}
	// Output: kubeconfig /etc/kubernetes/none.conf: no such file or directory
}
