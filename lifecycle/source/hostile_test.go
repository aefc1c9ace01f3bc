// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/hostile"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// The agent reads all files of the manifest directory. No file may exhaust its memory or time, and the error must name the
// file.
func TestHostileManifests(t *testing.T) {
	origin := source.Origin{Source: source.File, NodeName: "n"}
	for _, m := range hostile.All(1 << 20) {
		t.Run(m.Name, func(t *testing.T) {
			origin.Location = m.Name
			var errs []*source.Error
			costtest.Check(t, costtest.Limit{}, func() { _, errs = source.Parse(m.Text, origin) })
			if !m.Fine {
				require.NotEmpty(t, errs)
			}
			for _, err := range errs {
				assert.True(t, strings.HasPrefix(err.Error(), m.Name+":"), "%.100v", err)
				assert.LessOrEqual(t, len(err.Error()), 5_000, "the error text is limited")
				assert.True(t, utf8.ValidString(err.Error()))
			}
		})
	}
}

// Errors name file, line, field and value.
func TestErrorsOfHostileManifests(t *testing.T) {
	wants := map[string]string{
		"alias-scalar-in-lists":   "alias-scalar-in-lists.yaml:13: more than 1309128 bytes of strings, with aliases expanded",
		"alias-levels":            "alias-levels.yaml:14: more than 50000 values in the file",
		"alias-itself":            "alias-itself.yaml:10: an alias stands for something that holds it",
		"quantity-limits":         "quantity-limits.yaml:11: spec.containers[0].resources.limits.cpu: quantity \"1e30000000\": the exponent must be between -100 and 100",
		"quantity-in-list":        "quantity-in-list.yaml:5: items[0].spec.containers[0].resources.limits.cpu: quantity \"1e30000000\": the exponent must be between -100 and 100",
		"quantity-divisor":        "quantity-divisor.yaml:10: spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: quantity \"1e30000000\": the exponent must be between -100 and 100",
		"many-json-containers":    "many-json-containers.yaml:1: spec.containers: a list of more than 1000 elements",
		"many-init-containers":    "many-init-containers.yaml:11: a list of more than 1000 elements",
		"many-documents":          "many-documents.yaml:1: more than 10000 documents",
		"nested-lists-allowed":    "nested-lists-allowed.yaml:12: more than 100 lists and objects within each other",
		"long-string-in-quantity": "long-string-in-quantity.yaml:11: spec.containers[0].resources.limits.cpu: quantity \"" + strings.Repeat("1", 32) + "\"...: ",
	}
	for _, m := range hostile.All(500_000) {
		name := strings.TrimSuffix(m.Name, ".yaml")
		if want, ok := wants[name]; ok {
			_, errs := source.Parse(m.Text, source.Origin{Source: source.File, Location: m.Name})
			require.NotEmpty(t, errs)
			assert.Contains(t, errs[0].Error(), want)
			delete(wants, name)
		}
	}
	assert.Empty(t, wants, "these manifests are missing in the corpus")
}

// Large but legitimate manifests are accepted: many pods, long lists, anchors and large quantities.
func TestLimitsAllowLargeManifests(t *testing.T) {
	var list strings.Builder
	list.WriteString("apiVersion: v1\nkind: PodList\nitems:\n")
	const pod = "- metadata: {name: p"
	for i := range 250 {
		list.WriteString(pod + strings.Repeat("x", i) + "}\n  spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {limits: {cpu: 1e3, memory: 64Gi}}, env: [{name: A, value: b}]}]}\n")
	}
	pods, errs := source.Parse([]byte(list.String()), source.Origin{Location: "f.yaml"})
	require.Empty(t, errs)
	require.Len(t, pods, 250)

	args := strings.Repeat("a, ", 1_000)
	manifest := web + "    args: [" + args + "]\n    env: [{name: A, value: &v " + strings.Repeat("[,{:-", 10_000) + "}, {name: B, value: *v}]\n"
	manifest = strings.Replace(manifest, "&v [", "&v \"[", 1)
	manifest = strings.Replace(manifest, "-}, {name: B", "-\"}, {name: B", 1)
	parsed := parseOne(t, manifest, source.Origin{Location: "f.yaml"})
	assert.Len(t, parsed.Spec.Containers[0].Args, 1_000)
	assert.Equal(t, parsed.Spec.Containers[0].Env[0].Value, parsed.Spec.Containers[0].Env[1].Value)
}
