// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/hostile"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

var update = flag.Bool("update", false, "rewrite the expected results of the scripts in testdata")

func TestErrorsNameFileLineAndField(t *testing.T) {
	const script = "testdata/errors.txtar"
	archive, err := txtar.ParseFile(script)
	require.NoError(t, err)
	for i := 0; i+1 < len(archive.Files); i += 2 {
		manifest, want := archive.Files[i], &archive.Files[i+1]
		require.Equal(t, "want", want.Name)
		t.Run(manifest.Name, func(t *testing.T) {
			pods, errs := source.Parse(manifest.Data, source.Origin{Source: source.File, Location: manifest.Name})
			var got strings.Builder
			for _, e := range errs {
				got.WriteString(e.Error() + "\n")
			}
			for _, p := range pods {
				got.WriteString("pod " + p.Namespace + "/" + p.Name + "\n")
			}
			if *update {
				want.Data = []byte(got.String())
			}
			assert.Empty(t, cmp.Diff(string(want.Data), got.String()))
		})
	}
	if *update {
		require.NoError(t, os.WriteFile(script, txtar.Format(archive), 0o644))
	}
}

func TestErrorsAreLimited(t *testing.T) {
	pods, errs := source.Parse([]byte(strings.Repeat("---\na\n", 1000)+"---"+web), source.Origin{Location: "f.yaml"})
	assert.Len(t, pods, 1, "the valid object after the invalid ones is parsed")
	require.Len(t, errs, 101)
	assert.EqualError(t, errs[99], "f.yaml:200: want an object")
	assert.EqualError(t, errs[100], "f.yaml:202: further errors are not shown")
}

const web = `
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: nginx:1
`

func parseOne(t *testing.T, manifest string, o source.Origin) *corev1.Pod {
	t.Helper()
	pods, errs := source.Parse([]byte(manifest), o)
	require.Empty(t, errs)
	require.Len(t, pods, 1)
	return pods[0]
}

func TestStaticPod(t *testing.T) {
	seen := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	pod := parseOne(t, web, source.Origin{Source: source.File, Location: "/m/web.yaml", NodeName: "node-1", Seen: seen})
	assert.Equal(t, "web-node-1", pod.Name)
	assert.Equal(t, "default", pod.Namespace)
	assert.Equal(t, "node-1", pod.Spec.NodeName)
	assert.Regexp(t, "^[0-9a-f]{32}$", string(pod.UID))
	assert.Equal(t, corev1.PodPending, pod.Status.Phase)
	assert.Equal(t, map[string]string{
		source.AnnotationHash:   string(pod.UID),
		source.AnnotationSource: "file",
		source.AnnotationSeen:   "2026-05-04T03:02:01Z",
	}, pod.Annotations)
	assert.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}, pod.Spec.Tolerations)
	assert.Equal(t, corev1.RestartPolicyAlways, pod.Spec.RestartPolicy, "defaults are set")

	pod = parseOne(t, web, source.Origin{Source: source.URL, Location: "http://x"})
	assert.Equal(t, "web", pod.Name, "without a node name the pod name has no suffix")
	assert.Empty(t, pod.Spec.NodeName)
	assert.Empty(t, pod.Spec.Tolerations, "only pods of files tolerate all NoExecute taints")
}

func TestUIDDependsOnContentNodeAndPath(t *testing.T) {
	origin := source.Origin{Source: source.File, Location: "/m/web.yaml", NodeName: "n1"}
	uid := parseOne(t, web, origin).UID
	// The UID of kubelet 1.37. If it changed, an upgrade would replace every pod of every node.
	assert.EqualValues(t, "1bb9584fd36541f282c1e0b768640b88", uid)

	json := `{"kind":"Pod", "apiVersion":"v1", "spec":{"containers":[{"image":"nginx:1","name":"web"}]}, "metadata":{"name":"web"}}`
	assert.Equal(t, uid, parseOne(t, json, origin).UID, "format and order of fields do not change the UID")
	assert.Equal(t, uid, parseOne(t, web+"# comment\n", origin).UID)
	assert.Equal(t, uid, parseOne(t, web+"  restartPolicy: Always\n", origin).UID, "a default that is written out does not change the UID")
	assert.NotEqual(t, uid, parseOne(t, strings.Replace(web, "nginx:1", "nginx:2", 1), origin).UID)
	other := origin
	other.NodeName = "n2"
	assert.NotEqual(t, uid, parseOne(t, web, other).UID)
	other = origin
	other.Location = "/m/web2.yaml"
	assert.NotEqual(t, uid, parseOne(t, web, other).UID)

	fixed := strings.Replace(web, "name: web\n", "name: web\n  uid: abc-1\n", 1)
	assert.EqualValues(t, "abc-1", parseOne(t, fixed, origin).UID)
}

// The kubelet hashes kind and apiVersion of an item of a PodList, but not those of a single pod.
func TestUIDOfPodListItemDependsOnItsKind(t *testing.T) {
	origin := source.Origin{Source: source.URL, Location: "http://x", NodeName: "n1"}
	content := `"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "nginx:1"}]}}`
	typed := `{"apiVersion": "v1", "kind": "Pod", ` + content
	uidOf := func(manifest string) string { return string(parseOne(t, manifest, origin).UID) }

	single := uidOf(typed)
	assert.Equal(t, single, uidOf(`{"apiVersion": "v1", "kind": "PodList", "items": [{`+content+`]}`))
	assert.Equal(t, single, uidOf(`{"apiVersion": "v1", "kind": "List", "items": [`+typed+`]}`))
	assert.NotEqual(t, single, uidOf(`{"apiVersion": "v1", "kind": "PodList", "items": [`+typed+`]}`))
	assert.Equal(t, "Pod", parseOne(t, typed, origin).Kind, "a parsed pod keeps its kind")
}

func TestYAMLIsReadAsTheKubeletReadsIt(t *testing.T) {
	pod := parseOne(t, strings.ReplaceAll(web, "spec:\n", "spec:\n  hostNetwork: on\n  terminationGracePeriodSeconds: 0o17\n"), source.Origin{})
	assert.True(t, pod.Spec.HostNetwork, "the value on is true as in YAML 1.1")
	assert.EqualValues(t, 15, *pod.Spec.TerminationGracePeriodSeconds)
}

func FuzzParse(f *testing.F) {
	archive, err := txtar.ParseFile("testdata/errors.txtar")
	require.NoError(f, err)
	for _, file := range archive.Files {
		f.Add(file.Data)
	}
	f.Add([]byte(web + "---" + web))
	f.Add([]byte("a: &a [*a]"))
	for _, m := range hostile.All(10_000) {
		f.Add(m.Text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var pods []*corev1.Pod
		var errs []*source.Error
		costtest.Check(t, costtest.Limit{}, func() {
			pods, errs = source.Parse(data, source.Origin{Source: source.File, Location: "f.yaml", NodeName: "n"})
		})
		lines := strings.Count(string(data), "\n") + 1
		for _, e := range errs {
			assert.Equal(t, "f.yaml", e.File)
			assert.Positive(t, e.Line)
			assert.LessOrEqual(t, e.Line, lines, "%v", e)
			assert.NotEmpty(t, e.Err.Error())
		}
		for _, p := range pods {
			assert.NotEmpty(t, p.Name)
			assert.NotEmpty(t, p.UID)
			assert.NotEmpty(t, p.Spec.Containers)
		}
		if len(pods)+len(errs) == 0 {
			// Only a list may be without pods.
			assert.Contains(t, string(data), "List")
		}
	})
}

// With AllowObjects pods may reference config maps and secrets, but no other objects.
func TestAllowObjectsPermitsReferences(t *testing.T) {
	pod := strings.ReplaceAll(web, "spec:\n", "spec:\n  imagePullSecrets: [{name: pull}]\n")
	_, errs := source.Parse([]byte(pod), source.Origin{Location: "f.yaml"})
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "spec.imagePullSecrets: Forbidden: static pods may not reference secrets")
	parseOne(t, pod, source.Origin{Location: "f.yaml", AllowObjects: true})

	pod = strings.ReplaceAll(pod, "spec:\n", "spec:\n  serviceAccountName: web\n")
	_, errs = source.Parse([]byte(pod), source.Origin{Location: "f.yaml", AllowObjects: true})
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "spec.serviceAccountName: Forbidden: static pods may not reference service accounts")
}

// With AllowTokens a pod may name a service account and mount the volume that an API server would add.
func TestAllowTokensPermitsServiceAccount(t *testing.T) {
	pod := strings.ReplaceAll(web, "spec:\n", `spec:
  serviceAccountName: web
  volumes:
    - name: kube-api-access
      projected:
        sources:
          - {serviceAccountToken: {path: token, expirationSeconds: 3607}}
          - {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}
          - {downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}}
`)
	for name, c := range map[string]struct {
		origin source.Origin
		want   []string
	}{
		"neither": {source.Origin{}, []string{"spec.serviceAccountName", "spec.volumes[0].projected"}},
		"objects": {source.Origin{AllowObjects: true}, []string{"spec.serviceAccountName", "spec.volumes[0].projected"}},
		"tokens":  {source.Origin{AllowTokens: true}, []string{"spec.volumes[0].projected"}},
		"both":    {source.Origin{AllowObjects: true, AllowTokens: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.origin.Location = "f.yaml"
			_, errs := source.Parse([]byte(pod), c.origin)
			require.Len(t, errs, len(c.want))
			for i, field := range c.want {
				require.ErrorContains(t, errs[i], field+": Forbidden: static pods may not reference")
			}
		})
	}
}
