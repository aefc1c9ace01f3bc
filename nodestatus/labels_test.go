// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/nodestatus"
)

func TestNodeName(t *testing.T) {
	name, err := nodestatus.NodeName(" Foo.Example\n")
	require.NoError(t, err)
	assert.Equal(t, "foo.example", name)
	_, err = nodestatus.NodeName(" \n")
	assert.EqualError(t, err, `host name " \n": is empty, so the node needs a name`)
}

func TestParseLabels(t *testing.T) {
	assert.Equal(t, map[string]string{"a": "1", "b": "", "c": "x=y", "d": "2"}, nodestatus.ParseLabels("a=1,b,, c = x=y ,d=1,d=2"))
	assert.Empty(t, nodestatus.ParseLabels(""))
}

func TestValidateRejectsReservedLabels(t *testing.T) {
	for key, want := range map[string]string{
		"example.com/x": "", "disk": "", "foo.node.kubernetes.io/x": "", "node.kubernetes.io/instance-type": "",
		"kubelet.kubernetes.io/x": "", corev1.LabelTopologyZone: "", nodestatus.LabelBetaOS: "", "notkubernetes.io/x": "", "kubernetes.io": "",
		"node-role.kubernetes.io/x":              "a node sets labels of kubernetes.io and k8s.io only below",
		"kubernetes.io/role":                     "a node sets labels of kubernetes.io and k8s.io only below",
		"x.k8s.io/y":                             "a node sets labels of kubernetes.io and k8s.io only below",
		"xnode.kubernetes.io/y":                  "a node sets labels of kubernetes.io and k8s.io only below",
		"node-restriction.kubernetes.io/secret":  "a node sets labels of kubernetes.io and k8s.io only below",
		"a/b/c":                                  "a valid label key must consist of",
		"":                                       "name part must be non-empty",
		"example.com/" + strings.Repeat("x", 64): "name part must be no more than 63 bytes",
	} {
		c := nodestatus.Config{Name: "n1", Labels: map[string]string{key: "v"}}
		err := c.Validate()
		if want == "" {
			assert.NoError(t, err, key)
			continue
		}
		require.ErrorContains(t, err, want, key)
		assert.True(t, strings.HasPrefix(err.Error(), `node label "`+key+`"="v": `), err)
		assert.NotContains(t, err.Error(), "\n")
	}
	c := nodestatus.Config{Name: "n1", Labels: map[string]string{"a": "not valid"}}
	assert.ErrorContains(t, c.Validate(), `node label "a"="not valid": a valid label must be`)
}

func TestParseTaints(t *testing.T) {
	taints, err := nodestatus.ParseTaints("gpu=a100:NoSchedule,example.com/new:NoExecute,gpu=:PreferNoSchedule")
	require.NoError(t, err)
	assert.Equal(t, []corev1.Taint{
		{Key: "gpu", Value: "a100", Effect: corev1.TaintEffectNoSchedule},
		{Key: "example.com/new", Effect: corev1.TaintEffectNoExecute},
		{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule},
	}, taints)
	none, err := nodestatus.ParseTaints("")
	require.NoError(t, err)
	assert.Empty(t, none)

	for text, want := range map[string]string{
		"gpu":                               `taint "gpu": want key=value:effect or key:effect`,
		"gpu:Never":                         `taint "gpu=:Never": the effect must be NoSchedule, PreferNoSchedule or NoExecute`,
		"gpu:NoSchedule-":                   `taint "gpu=:NoSchedule-": the effect must be`,
		"a=b:NoSchedule:NoExecute":          `taint "a=b:NoSchedule:NoExecute": the effect must be`,
		"a=b=c:NoSchedule":                  `taint "a=b=c:NoSchedule": a valid label must be`,
		"=b:NoSchedule":                     `taint "=b:NoSchedule": name part must be non-empty`,
		"a=1:NoSchedule,a=2:NoSchedule":     `taint "a=2:NoSchedule": there is another taint with this key and effect`,
		"a:NoSchedule,":                     `taint "": want key=value:effect or key:effect`,
		strings.Repeat("x", 1e5) + ":Never": `taint "xxx`,
	} {
		_, err := nodestatus.ParseTaints(text)
		require.ErrorContains(t, err, want)
		assert.Less(t, len(err.Error()), 1000)
	}
}

func TestParseNodeIPs(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "10.0.0.1": "", " 10.0.0.1 , fd00::1": "", "::": "", "0.0.0.0": "",
		"10.0.0.1,10.0.0.2":         "must be a single IP or a dual-stack pair of IPs",
		"10.0.0.1,fd00::1,10.0.0.2": "must be a single IP or a dual-stack pair of IPs",
		"10.0.0.1,::":               "0.0.0.0 or :: cannot be one of a dual-stack pair",
		"10.0.0.1,":                 `node IP "": is not an IP address`,
		"fe80::1%eth0":              `node IP "fe80::1%eth0": is not an IP address`,
		"127.0.0.1":                 "node IP 127.0.0.1: can't be loopback address",
		"example.com":               `node IP "example.com": is not an IP address`,
	} {
		ips, err := nodestatus.ParseNodeIPs(text)
		if want != "" {
			assert.ErrorContains(t, err, want, text)
			continue
		}
		require.NoError(t, err, text)
		c := nodestatus.Config{Name: "n1", NodeIPs: ips}
		assert.NoError(t, c.Validate())
	}
}

// Each error is one line that names the field and its value.
func TestValidateNamesEachInvalidField(t *testing.T) {
	for _, test := range []struct {
		name   string
		config nodestatus.Config
		want   string
	}{
		{"no name", nodestatus.Config{Hostname: "h"}, `node name "": a lowercase RFC 1123 subdomain`},
		{"upper case", nodestatus.Config{Name: "Node", Hostname: "h"}, `node name "Node": a lowercase RFC 1123 subdomain`},
		{"name too long for a label", nodestatus.Config{Name: strings.Repeat("a.", 40) + "a"}, "which is the label kubernetes.io/hostname: must be no more than 63 bytes"},
		{"pods", nodestatus.Config{Name: "n1", MaxPods: -1}, "maxPods -1: must be between 0 and 2147483648"},
		{"cores", nodestatus.Config{Name: "n1", PodsPerCore: -2}, "podsPerCore -2: must be between 0 and 2147483648"},
		{"port", nodestatus.Config{Name: "n1", Port: 65536}, "port 65536: must be between 0 and 65535"},
		{"images", nodestatus.Config{Name: "n1", MaxImages: new(int32(-2))}, "nodeStatusMaxImages -2: must be -1 or more"},
		{"feature", nodestatus.Config{Name: "n1", DeclaredFeatures: []string{"a b"}}, `declared feature "a b": must be like MyFeature`},
		{"taint", nodestatus.Config{Name: "n1", Taints: []corev1.Taint{{Key: "a"}}}, `taint "a=:": the effect must be`},
		{"time of a taint", nodestatus.Config{Name: "n1", Taints: []corev1.Taint{{
			Key: "a", Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(start)),
		}}}, `taint "a=:NoExecute": timeAdded is set by the control plane`},
		{"node IPs", nodestatus.Config{Name: "n1", NodeIPs: ips("10.0.0.1", "10.0.0.2")}, "node IPs [10.0.0.1 10.0.0.2]: must be a single IP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.config.Validate()
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
	long := nodestatus.Config{Name: strings.Repeat("a.", 40) + "a", Labels: map[string]string{corev1.LabelHostname: "short"}}
	assert.NoError(t, long.Validate(), "a configured hostname label replaces the long name")
}

// Any flag value is parsed or rejected with a short error, and parsed values are valid.
func FuzzFlags(f *testing.F) {
	f.Add("a=1,b", "gpu=a100:NoSchedule", "10.0.0.1,fd00::1")
	f.Add(",=,", ":,::NoExecute-", "::,%")
	f.Fuzz(func(t *testing.T, labels, taints, addresses string) {
		c := nodestatus.Config{Name: "n1", Labels: nodestatus.ParseLabels(labels)}
		if err := c.Validate(); err != nil {
			assert.LessOrEqual(t, len(err.Error()), 3000*max(len(c.Labels), 1))
		}
		var errTaints, errIPs error
		c = nodestatus.Config{Name: "n1"}
		c.Taints, errTaints = nodestatus.ParseTaints(taints)
		c.NodeIPs, errIPs = nodestatus.ParseNodeIPs(addresses)
		if errTaints == nil && errIPs == nil {
			assert.NoError(t, c.Validate())
		}
	})
}
