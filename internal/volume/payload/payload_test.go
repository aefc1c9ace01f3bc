// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/internal/volume/payload"
	"github.com/seed81659283/nodeagent/volume"
)

// pod returns a pod from the YAML of its spec.
func pod(t testing.TB, spec string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = "web", "default", "u1"
	p.Labels = map[string]string{"app": "web", "a": "b\"\n"}
	p.Annotations = map[string]string{"example.com/note": "hello"}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	return p
}

// text returns a sorted list with one line per file.
func text(files payload.Files) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		owner := ""
		if f.Owner != nil {
			owner = fmt.Sprintf(" user=%d", *f.Owner)
		}
		lines = append(lines, fmt.Sprintf("%s %o%s %q", name, f.Mode, owner, f.Data))
	}
	return strings.Join(lines, "\n")
}

func inputs() payload.Inputs {
	return payload.Inputs{
		ConfigMaps: map[string]*corev1.ConfigMap{
			"app":   {Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"c": {0, 255}}},
			"other": {Data: map[string]string{"a": "later"}},
		},
		Secrets: map[string]*corev1.Secret{"key": {Data: map[string][]byte{"tls.key": []byte("s3cret"), "tls.crt": []byte("crt")}}},
		Tokens:  map[int]string{0: "token"}, TrustBundles: map[int][]byte{1: []byte("PEM")},
		Certificates: map[int]volume.PodCertificate{2: {Key: []byte("K"), Chain: []byte("C")}},
		Allocatable:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
	}
}

const containers = "\ncontainers: [{name: c, resources: {limits: {memory: 100Mi, cpu: 250m}, requests: {cpu: 200m, hugepages-2Mi: 4Mi}}}, {name: free}]\ninitContainers: [{name: i}]\n"

func TestBuildFilesOfVolumes(t *testing.T) {
	for name, c := range map[string]struct{ volume, spec, want string }{
		"config map":                      {"configMap: {name: app}", "", "a 644 \"1\"\nb 644 \"2\"\nc 644 \"\\x00\\xff\""},
		"default mode":                    {"configMap: {name: other, defaultMode: 0440}", "", "a 440 \"later\""},
		"items":                           {"configMap: {name: app, items: [{key: b, path: dir/x, mode: 0600}, {key: c, path: yy}]}", "", "dir/x 600 \"2\"\nyy 644 \"\\x00\\xff\""},
		"optional, missing":               {"configMap: {name: none, optional: true}", "", ""},
		"optional, missing key":           {"configMap: {name: other, optional: true, items: [{key: a, path: a}, {key: z, path: z}]}", "", "a 644 \"later\""},
		"secret":                          {"secret: {secretName: key, defaultMode: 0400}", "", "tls.crt 400 \"crt\"\ntls.key 400 \"s3cret\""},
		"secret, items":                   {"secret: {secretName: key, items: [{key: tls.key, path: k}]}", "", "k 644 \"s3cret\""},
		"labels":                          {"downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}", "", `l 644 "a=\"b\\\"\\n\"\napp=\"web\""`},
		"one annotation":                  {"downwardAPI: {items: [{path: f, fieldRef: {fieldPath: \"metadata.annotations['example.com/note']\"}, mode: 0604}]}", "", "f 604 \"hello\""},
		"one label, missing":              {"downwardAPI: {items: [{path: f, fieldRef: {fieldPath: \"metadata.labels['x']\"}}]}", "", "f 644 \"\""},
		"name, namespace, uid":            {"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}, {path: b, fieldRef: {fieldPath: metadata.namespace}}, {path: ./c, fieldRef: {fieldPath: metadata.uid}}]}", "", "a 644 \"web\"\nb 644 \"default\"\nc 644 \"u1\""},
		"limit":                           {"downwardAPI: {items: [{path: m, resourceFieldRef: {containerName: c, resource: limits.memory, divisor: 1Mi}}]}", containers, "m 644 \"100\""},
		"limit, rounded up":               {"downwardAPI: {items: [{path: m, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}", containers, "m 644 \"1\""},
		"limit in millicores":             {"downwardAPI: {items: [{path: m, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}}]}", containers, "m 644 \"250\""},
		"no limit: allocatable":           {"downwardAPI: {items: [{path: m, resourceFieldRef: {containerName: free, resource: limits.memory, divisor: 1Gi}}]}", containers, "m 644 \"8\""},
		"no limit, init":                  {"downwardAPI: {items: [{path: m, resourceFieldRef: {containerName: i, resource: limits.cpu}}]}", containers, "m 644 \"4\""},
		"no request":                      {"downwardAPI: {items: [{path: m, resourceFieldRef: {containerName: free, resource: requests.cpu}}]}", containers, "m 644 \"0\""},
		"huge pages":                      {"downwardAPI: {items: [{path: m, resourceFieldRef: {containerName: c, resource: requests.hugepages-2Mi}}]}", containers, "m 644 \"4194304\""},
		"huge pages, no limit":            {"downwardAPI: {items: [{path: m, resourceFieldRef: {containerName: c, resource: limits.hugepages-2Mi}}]}", containers, "m 644 \"0\""},
		"projected: the last source wins": {"projected: {defaultMode: 0444, sources: [{configMap: {name: app}}, {configMap: {name: other}}, {secret: {name: key, items: [{key: tls.crt, path: b}]}}]}", "", "a 444 \"later\"\nb 444 \"crt\"\nc 444 \"\\x00\\xff\""},
		"token":                           {"projected: {sources: [{serviceAccountToken: {path: t}}]}", "\ncontainers: [{name: c}]\n", "t 644 \"token\""},
		"token with an fsGroup":           {"projected: {sources: [{serviceAccountToken: {path: t}}]}", "\nsecurityContext: {fsGroup: 7}\ncontainers: [{name: c}]\n", "t 600 \"token\""},
		"token of one user":               {"projected: {sources: [{serviceAccountToken: {path: t}}]}", "\nsecurityContext: {runAsUser: 9}\ncontainers: [{name: c}, {name: d, securityContext: {runAsUser: 9}}]\n", "t 600 user=9 \"token\""},
		"token of two users":              {"projected: {sources: [{serviceAccountToken: {path: t}}]}", "\nsecurityContext: {runAsUser: 9}\ncontainers: [{name: c}]\ninitContainers: [{name: d, securityContext: {runAsUser: 0}}]\n", "t 644 \"token\""},
		"bundle":                          {"projected: {sources: [{downwardAPI: {}}, {clusterTrustBundle: {name: x, path: ca}}]}", "\nsecurityContext: {fsGroup: 7}\ncontainers: [{name: c}]\n", "ca 600 \"PEM\""},
		"bundle, optional, missing":       {"projected: {sources: [{clusterTrustBundle: {name: x, path: ca, optional: true}}]}", "\ncontainers: [{name: c}]\n", "ca 644 \"\""},
		"certificate":                     {"projected: {sources: [{downwardAPI: {}}, {downwardAPI: {}}, {podCertificate: {keyType: ED25519, signerName: x, credentialBundlePath: b, keyPath: k, certificateChainPath: c}}]}", "\ncontainers: [{name: c}]\n", "b 644 \"KC\"\nc 644 \"C\"\nk 644 \"K\""},
		"no sources":                      {"projected: {sources: []}", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(t, "volumes: [{name: v, "+c.volume+"}]\n"+c.spec)
			files, err := payload.BuildFiles(p, &p.Spec.Volumes[0], inputs())
			require.NoError(t, err)
			assert.Equal(t, c.want, text(files))
		})
	}
}

func TestBuildFilesRefusesInvalidVolumes(t *testing.T) {
	for name, c := range map[string]struct{ volume, want string }{
		"missing object":                 {"configMap: {name: none}", "configmap \"none\" not found"},
		"missing secret":                 {"secret: {secretName: none}", "secret \"none\" not found"},
		"missing key":                    {"configMap: {name: app, items: [{key: z, path: z}]}", "configmap references non-existent config key: z"},
		"missing secret key":             {"secret: {secretName: key, items: [{key: z, path: z}]}", "references non-existent secret key: z"},
		"two missing objects":            {"projected: {sources: [{configMap: {name: none}}, {secret: {name: none}}]}", "configmap \"none\" not found; secret \"none\" not found"},
		"path with ..":                   {"secret: {secretName: key, items: [{key: tls.key, path: a/../../b}]}", "'..'"},
		"absolute path":                  {"secret: {secretName: key, items: [{key: tls.key, path: /b}]}", "relative"},
		"empty path":                     {"secret: {secretName: key, items: [{key: tls.key, path: \"\"}]}", "empty"},
		"reserved name":                  {"secret: {secretName: key, items: [{key: tls.key, path: ..data}]}", "begin with"},
		"file and directory of one name": {"configMap: {name: app, items: [{key: a, path: x}, {key: b, path: x/y}]}", "path"},
		"mode":                           {"configMap: {name: app, defaultMode: 01777}", "mode"},
		"field":                          {"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: status.podIP}}]}", "unsupported fieldPath"},
		"subscript":                      {"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"spec['x']\"}}]}", "does not support subscript"},
		"container":                      {"downwardAPI: {items: [{path: a, resourceFieldRef: {containerName: x, resource: limits.cpu}}]}", "not found"},
		"resource":                       {"downwardAPI: {items: [{path: a, resourceFieldRef: {containerName: c, resource: limits.gpu}}]}", "unsupported container resource"},
		"no token":                       {"projected: {sources: [{downwardAPI: {}}, {serviceAccountToken: {path: t}}]}", "no service account token"},
		"no bundle":                      {"projected: {sources: [{clusterTrustBundle: {name: x, path: t}}]}", "no cluster trust bundle"},
		"no certificate":                 {"projected: {sources: [{podCertificate: {keyPath: t, keyType: ED25519, signerName: x}}]}", "no pod certificate"},
		"volume without files":           {"emptyDir: {}", "no source with files"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(t, "volumes: [{name: v, "+c.volume+"}]\n"+containers)
			files, err := payload.BuildFiles(p, &p.Spec.Volumes[0], inputs())
			require.ErrorContains(t, err, c.want)
			assert.Nil(t, files)
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestErrorsAreBounded(t *testing.T) {
	p := pod(t, "volumes: [{name: v, projected: {}}]")
	for i := range 1000 {
		source := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}}
		source.ConfigMap.Name = fmt.Sprint("none", i)
		p.Spec.Volumes[0].Projected.Sources = append(p.Spec.Volumes[0].Projected.Sources, source)
	}
	_, err := payload.BuildFiles(p, &p.Spec.Volumes[0], payload.Inputs{})
	require.ErrorContains(t, err, "and 990 more")
	require.Less(t, len(err.Error()), 1000)
}

func TestReferencesInOrder(t *testing.T) {
	for spec, want := range map[string]string{
		"configMap: {name: a, optional: true}": "[{ConfigMap a true}]",
		"secret: {secretName: b}":              "[{Secret b false}]",
		"projected: {sources: [{secret: {name: a}}, {downwardAPI: {}}, {configMap: {name: b, optional: true}}]}": "[{Secret a false} {ConfigMap b true}]",
		"emptyDir: {}": "[]",
	} {
		p := pod(t, "volumes: [{name: v, "+spec+"}]")
		assert.Equal(t, want, fmt.Sprint(slices.Collect(payload.References(&p.Spec.Volumes[0]))), spec)
		assert.Equal(t, strings.Contains(spec, "downwardAPI"), payload.ShowsMetadata(&p.Spec.Volumes[0]))
	}
}

// Each path is refused or leads to a file below the volume.
func FuzzPaths(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "..a", "a/..", "/", ".", "a//b", "\x00", "..data/x"} {
		f.Add(seed, "b")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		p := pod(t, "volumes: [{name: v, configMap: {name: app}}]")
		p.Spec.Volumes[0].ConfigMap.Items = []corev1.KeyToPath{{Key: "a", Path: a}, {Key: "b", Path: b}}
		files, err := payload.BuildFiles(p, &p.Spec.Volumes[0], inputs())
		if err != nil {
			return
		}
		for name := range files {
			if name == "" || name[0] == '/' || strings.HasPrefix(name, "..") || slices.Contains(strings.Split(name, "/"), "..") {
				t.Errorf("%q, %q: %q", a, b, name)
			}
		}
	})
}
