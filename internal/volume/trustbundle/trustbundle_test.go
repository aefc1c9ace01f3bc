// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package trustbundle_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/volume/trustbundle"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// certificates returns PEM certificates with these texts as their content.
func certificates(texts ...string) string {
	var out strings.Builder
	for _, text := range texts {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
	}
	return out.String()
}

// texts returns the contents of the certificates in file, sorted.
func texts(t *testing.T, file []byte) (all []string) {
	t.Helper()
	for len(file) > 0 {
		block, rest := pem.Decode(file)
		require.NotNil(t, block)
		require.Equal(t, "CERTIFICATE", block.Type)
		require.Empty(t, block.Headers)
		all, file = append(all, string(block.Bytes)), rest
	}
	slices.Sort(all)
	return all
}

func TestSelectBundlesByNameOrSigner(t *testing.T) {
	all := []volume.TrustBundle{
		{Name: "nobody"},
		{Name: "x:a", Signer: "x", Labels: map[string]string{"env": "prod"}},
		{Name: "x:b", Signer: "x", Labels: map[string]string{"env": "test"}},
		{Name: "y:a", Signer: "y", Labels: map[string]string{"env": "prod"}},
	}
	x := func(s *metav1.LabelSelector) corev1.ClusterTrustBundleProjection {
		return corev1.ClusterTrustBundleProjection{SignerName: new("x"), LabelSelector: s}
	}
	for name, c := range map[string]struct {
		source  corev1.ClusterTrustBundleProjection
		want    string
		missing bool
		err     string
	}{
		"by name":                  {source: corev1.ClusterTrustBundleProjection{Name: new("nobody")}, want: "nobody"},
		"signer as name":           {source: corev1.ClusterTrustBundleProjection{Name: new("x")}, missing: true, err: `cluster trust bundle "x"`},
		"by signer":                {source: x(&metav1.LabelSelector{}), want: "x:a x:b"},
		"signer without selector":  {source: x(nil), missing: true, err: "matched zero"},
		"with labels":              {source: x(&metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}), want: "x:a"},
		"signer with other labels": {source: x(&metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}), missing: true, err: "matched zero"},
		"expression": {
			source: x(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"prod"}}}}),
			want:   "x:b",
		},
		"invalid": {
			source: x(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Like"}}}),
			err:    "labelSelector: ",
		},
		"long": {
			source: x(&metav1.LabelSelector{MatchExpressions: slices.Repeat([]metav1.LabelSelectorRequirement{{
				Key: strings.Repeat("k", 63), Operator: metav1.LabelSelectorOpExists,
			}}, 1700)}),
			err: "more than 102400",
		},
		"no name and no signer": {err: "neither name nor signerName is set"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := trustbundle.SelectBundles(all, &c.source)
			assert.Equal(t, c.missing, errors.Is(err, fs.ErrNotExist), "%v", err)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			var names []string
			for _, b := range found {
				names = append(names, b.Name)
			}
			assert.Equal(t, c.want, strings.Join(names, " "))
		})
	}
}

// Text around a certificate is dropped. The order is constant and independent of the bundle names.
func TestEncodeAnchorsWithoutDuplicates(t *testing.T) {
	bundles := []volume.TrustBundle{
		{PEM: "text\n" + certificates("a", "b") + "more text"},
		{PEM: certificates("b", "c") + string(pem.EncodeToMemory(&pem.Block{Type: "X", Headers: map[string]string{"h": "i"}, Bytes: []byte("d")}))},
		{PEM: "nothing"},
	}
	seed := maphash.MakeSeed()
	file, err := trustbundle.EncodeAnchors(bundles, seed)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c", "d"}, texts(t, file))
	slices.Reverse(bundles)
	again, err := trustbundle.EncodeAnchors(bundles, seed)
	require.NoError(t, err)
	assert.Equal(t, file, again)
	orders := map[string]bool{}
	for range 100 {
		other, err := trustbundle.EncodeAnchors(bundles, maphash.MakeSeed())
		require.NoError(t, err)
		orders[string(other)] = true
	}
	assert.Greater(t, len(orders), 5)

	empty, err := trustbundle.EncodeAnchors(nil, seed)
	require.NoError(t, err)
	assert.NotNil(t, empty)
	assert.Empty(t, empty)
	_, err = trustbundle.EncodeAnchors([]volume.TrustBundle{{PEM: strings.Repeat("x", trustbundle.MaxBytes+1)}}, seed)
	require.ErrorContains(t, err, "more than")
}

func TestReaderReturnsAnchorsOrError(t *testing.T) {
	var bundles volumetest.TrustBundles
	reader := trustbundle.NewReader(&bundles)
	source := &corev1.ClusterTrustBundleProjection{Name: new("ca")}
	_, err := reader.TrustBundle(t.Context(), source)
	require.ErrorIs(t, err, fs.ErrNotExist)
	bundles.Put(volume.TrustBundle{Name: "ca", PEM: certificates("a")})
	file, err := reader.TrustBundle(t.Context(), source)
	require.NoError(t, err)
	assert.Equal(t, certificates("a"), string(file))
	bundles.Delete("ca")
	_, err = reader.TrustBundle(t.Context(), source)
	require.ErrorIs(t, err, fs.ErrNotExist)

	away := errors.New("not synced")
	bundles.Fault = func() error { return away }
	_, err = reader.TrustBundle(t.Context(), source)
	require.ErrorIs(t, err, away)
	assert.Panics(t, func() { trustbundle.NewReader(nil) })
}

// The result has each block once, independent of the distribution of blocks over bundles.
func FuzzEncodeAnchors(f *testing.F) {
	f.Add(certificates("a", "b"), certificates("b"))
	f.Add("-----BEGIN X-----\na: b\n\nYQ==\n-----END X-----\n", "text")
	f.Fuzz(func(t *testing.T, a, b string) {
		seed := maphash.MakeSeed()
		file, err := trustbundle.EncodeAnchors([]volume.TrustBundle{{PEM: a}, {PEM: b}}, seed)
		require.NoError(t, err)
		all := texts(t, file)
		require.Equal(t, slices.Compact(slices.Clone(all)), all)
		again, err := trustbundle.EncodeAnchors([]volume.TrustBundle{{PEM: string(file)}}, seed)
		require.NoError(t, err)
		require.Equal(t, file, again)
	})
}

func ExampleNewReader() {
	lister := volume.TrustBundleListerFunc(func(context.Context) ([]volume.TrustBundle, error) {
		return []volume.TrustBundle{{Name: "ca", PEM: "our root\n" + certificates("root")}}, nil
	})
	file, err := trustbundle.NewReader(lister).TrustBundle(context.Background(), &corev1.ClusterTrustBundleProjection{Name: new("ca")})
	fmt.Printf("%s%v\n", file, err)
	// Output:
	// -----BEGIN CERTIFICATE-----
	// cm9vdA==
	// -----END CERTIFICATE-----
	// <nil>
}
