// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"encoding/pem"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/kubelet/clustertrustbundle"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/volume/trustbundle"
	"github.com/seed81659283/nodeagent/volume"
)

// Both sides return the same certificates for a clusterTrustBundle source and generated bundles. Their order is not
// compared.
func TestTrustBundles(t *testing.T) { trustBundles.Run(t, flags.AtMost(300)) } // each input starts an informer

// bundlesOf is a source with the existing bundles.
type bundlesOf struct {
	Bundles []volume.TrustBundle
	Source  corev1.ClusterTrustBundleProjection
}

var trustBundles = conformance.Comparison[bundlesOf, string]{
	Make:    makeBundles,
	Kubelet: kubeletBundle,
	Ours: func(in bundlesOf) string {
		found, err := trustbundle.SelectBundles(in.Bundles, &in.Source)
		if err != nil {
			return "refused"
		}
		file, err := trustbundle.EncodeAnchors(found, maphash.MakeSeed())
		return describeBundle(file, err)
	},
}

func makeBundles(c *conformance.Choices) bundlesOf {
	var in bundlesOf
	for i := range c.Int(4) {
		b := volume.TrustBundle{Name: string(rune('a' + i)), Signer: conformance.Pick(c, "", "x", "y")}
		if c.OneIn(2) {
			b.Labels = map[string]string{"env": conformance.Pick(c, "prod", "test")}
		}
		for range c.Int(4) {
			block := &pem.Block{Type: conformance.Pick(c, "CERTIFICATE", "X"), Bytes: []byte(conformance.Pick(c, "1", "2", "3"))}
			if c.OneIn(4) {
				block.Headers = map[string]string{"h": "i"}
			}
			b.PEM += conformance.Pick(c, "", "text\n") + string(pem.EncodeToMemory(block))
		}
		in.Bundles = append(in.Bundles, b)
	}
	if c.OneIn(2) {
		in.Source.Name = new(conformance.Pick(c, "a", "b", "none"))
		return in
	}
	in.Source.SignerName = new(conformance.Pick(c, "x", "y", "none"))
	switch c.Int(4) {
	case 0:
		in.Source.LabelSelector = &metav1.LabelSelector{}
	case 1:
		in.Source.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	case 2:
		in.Source.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "env", Operator: conformance.Pick(c, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Like"),
		}}}
	}
	return in
}

// kubeletBundle returns the result of the kubelet's manager, with an informer on a cluster in memory.
func kubeletBundle(in bundlesOf) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := fake.NewSimpleClientset()
	for _, b := range in.Bundles {
		o := &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: b.Signer, TrustBundle: b.PEM}}
		o.Name, o.Labels = b.Name, b.Labels
		if err := client.Tracker().Add(o); err != nil {
			return "create cluster: " + err.Error()
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	manager, err := clustertrustbundle.NewGAInformerManager(ctx, factory, 10, time.Minute)
	if err != nil {
		return "create manager: " + err.Error()
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if in.Source.Name != nil {
		return describeBundle(manager.GetTrustAnchorsByName(ctx, *in.Source.Name, false))
	}
	return describeBundle(manager.GetTrustAnchorsBySigner(ctx, *in.Source.SignerName, in.Source.LabelSelector, false))
}

// describeBundle returns the blocks of a file, sorted.
func describeBundle(file []byte, err error) string {
	if err != nil {
		return "refused"
	}
	var blocks []string
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		blocks = append(blocks, string(pem.EncodeToMemory(block)))
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "")
}
