// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/kubelet/config"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podhash"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

func TestStaticPodDump(t *testing.T) { run(t, staticDump) }
func FuzzStaticPodDump(f *testing.F) { fuzz(f, staticDump) }
func FuzzStaticPodUID(f *testing.F)  { fuzz(f, staticUID(nil)) }

// loadTimeZone loads the local time zone, which the kubelet hashes with a time. A running kubelet has loaded it for its log.
func loadTimeZone() { _ = time.Local.String() }

// TestStaticPodUID compares UIDs and annotations of the pods of valid manifests, without the kubelet's validation.
func TestStaticPodUID(t *testing.T) {
	var accepted atomic.Int64
	run(t, staticUID(&accepted))
	assert.Greater(t, accepted.Load(), int64(flags.Inputs()/2), "few of the manifests are valid: the generator needs repair")
}

// TestStaticPodSource compares the result of the kubelet's file and URL sources, including their validation.
func TestStaticPodSource(t *testing.T) {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true}) // as the kubelet does
	var refused atomic.Int64
	c := staticUID(nil)
	c.Kubelet = func(m staticManifest) staticPods {
		loadTimeZone()
		pods, err := m.kubelet().Read()
		if err != nil {
			refused.Add(1)
			return staticPods{Refused: true}
		}
		return listStaticPods(pods)
	}
	limit := flags.AtMost(4_000) // validation takes ten milliseconds
	c.Run(t, limit)
	assert.Less(t, refused.Load(), int64(limit.Inputs()/2), "few of the manifests are valid: the generator needs repair")
}

// TestStaticPodTypes compares the corev1 types of a pod, which package podhash prints, with the kubelet's internal types.
func TestStaticPodTypes(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(path string, ours, kubelet reflect.Type)
	walk = func(path string, ours, kubelet reflect.Type) {
		if ours == kubelet || seen[ours] {
			return
		}
		require.Equal(t, kubelet.Kind(), ours.Kind(), path)
		require.Equal(t, kubelet.Name(), ours.Name(), path)
		switch ours.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(path, ours.Elem(), kubelet.Elem())
		case reflect.Map:
			walk(path, ours.Key(), kubelet.Key())
			walk(path, ours.Elem(), kubelet.Elem())
		case reflect.Struct:
			seen[ours] = true
			require.Equal(t, kubelet.NumField(), ours.NumField(), path)
			for i := range ours.NumField() {
				ourField, field := ours.Field(i), kubelet.Field(i)
				require.Equal(t, field.Name, ourField.Name, path)
				walk(path+"."+field.Name, ourField.Type, field.Type)
			}
		}
	}
	walk("pod", reflect.TypeFor[corev1.Pod](), reflect.TypeFor[core.Pod]())
}

// TestStaticPodUIDsOfManifests computes the UIDs in the test data of package podhash with the code of the kubelet.
func TestStaticPodUIDsOfManifests(t *testing.T) {
	files, err := filepath.Glob("../internal/lifecycle/podhash/testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		pods, err := config.ConformanceManifest{
			Data: data, Location: "/etc/kubernetes/manifests/" + filepath.Base(file), IsFile: true, NodeName: "control-1",
		}.Read()
		require.NoError(t, err, file)
		first, _, _ := strings.Cut(string(data), "\n")
		assert.Equal(t, first, "# UID "+string(pods[0].UID), file)
	}
}

// TestStaticPodsOfPath compares the pods that both sides read in files. The UIDs depend on how the path is written.
func TestStaticPodsOfPath(t *testing.T) {
	dir := t.TempDir()
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(manifest), 0o600))
	base := filepath.Base(dir)
	for _, path := range []string{
		dir, dir + "/", dir + "//", "/" + dir, dir + "/../" + base, dir + "/./", dir + "/web.yaml", dir + "//web.yaml", dir + "/../" + base + "/web.yaml", dir + "/./web.yaml",
	} {
		d := source.NewDir(path, source.DirOptions{NodeName: "node-1"})
		now := time.Now()
		d.Scan(now)
		u := d.Scan(now.Add(time.Second))
		require.Empty(t, u.Errs, path)
		assert.Equal(t, listStaticPods(config.ConformancePathPods(path, "node-1")), listStaticPods(u.Pods), path)
	}
}

// TestStaticPodsOfURL compares the pods that both sides read at a URL. The UIDs depend on how the URL is written.
func TestStaticPodsOfURL(t *testing.T) {
	pod := `"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`
	for _, text := range []string{
		`{"apiVersion": "v1", "kind": "Pod", ` + pod, `{"apiVersion": "v1", "kind": "PodList", "items": [{` + pod + `]}`,
		`{"apiVersion": "v1", "kind": "PodList", "items": [{"apiVersion": "v1", "kind": "Pod", ` + pod + `]}`,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		t.Cleanup(server.Close)
		for _, url := range []string{server.URL, server.URL + "/a%20b?x=y%20z&q=#f", strings.Replace(server.URL, "://", "://user:p@", 1), strings.Replace(server.URL, "http", "HTTP", 1)} {
			u := source.NewHTTP(url, source.HTTPOptions{NodeName: "node-1"}).Fetch(t.Context(), time.Now())
			require.Empty(t, u.Errs, url)
			assert.Equal(t, listStaticPods(config.ConformanceURLPods(url, "node-1")), listStaticPods(u.Pods), url)
		}
	}
}

// dumpText is the text of a pod that is hashed. Its JSON has a line for each word, so that a difference can be found.
type dumpText string

// MarshalJSON returns a list of the words.
func (d dumpText) MarshalJSON() ([]byte, error) { return json.Marshal(strings.Fields(string(d))) }

// staticDump compares the hashed texts of pods with random values in all fields, whether valid or not.
var staticDump = conformance.Comparison[string, dumpText]{
	Make: randomPodJSON,
	Kubelet: func(text string) dumpText {
		loadTimeZone()
		dumps, err := config.ConformanceManifest{Data: []byte(text)}.Dumps()
		if err != nil {
			panic(fmt.Sprint(err, "\n", text))
		}
		return dumpText(dumps[0])
	},
	Ours: func(text string) dumpText {
		pod := &corev1.Pod{}
		if err := json.Unmarshal([]byte(text), pod); err != nil {
			panic(err)
		}
		pod.TypeMeta = metav1.TypeMeta{}
		podapi.Default(pod)
		podhash.Default(pod)
		var b strings.Builder
		if err := podhash.Dump(&b, pod); err != nil {
			panic(err)
		}
		return dumpText(b.String())
	},
}

// staticPods are the pods of a manifest, or its refusal.
type staticPods struct {
	Refused bool
	Pods    []staticPod
}

// staticPod is the identity of a static pod.
type staticPod struct {
	UID         types.UID
	Name        string
	ConfigHash  string // annotation of the mirror pod
	Tolerations int
}

func listStaticPods(pods []*corev1.Pod) (list staticPods) {
	for _, pod := range pods {
		list.Pods = append(list.Pods, staticPod{pod.UID, pod.Namespace + "/" + pod.Name, pod.Annotations[source.AnnotationHash], len(pod.Spec.Tolerations)})
	}
	return list
}

// staticManifest is a manifest with its origin.
type staticManifest struct {
	Text, Location, NodeName string
	IsFile                   bool
}

func (m staticManifest) kubelet() config.ConformanceManifest {
	return config.ConformanceManifest{Data: []byte(m.Text), Location: m.Location, IsFile: m.IsFile, NodeName: types.NodeName(m.NodeName)}
}

// staticUID compares the pods of manifests as package source and the kubelet read them. A manifest that one of them refuses is
// not compared: TestValidate compares the validation. accepted counts the manifests that package source accepts.
func staticUID(accepted *atomic.Int64) conformance.Comparison[staticManifest, staticPods] {
	return conformance.Comparison[staticManifest, staticPods]{
		Make: randomManifest,
		Kubelet: func(m staticManifest) staticPods {
			loadTimeZone()
			pods, err := m.kubelet().Decode()
			if err != nil {
				panic(fmt.Sprint(err, "\n", m.Text))
			}
			list := staticPods{}
			for _, pod := range pods {
				list.Pods = append(list.Pods, staticPod{pod.UID, pod.Namespace + "/" + pod.Name, pod.Annotations[source.AnnotationHash], len(pod.Spec.Tolerations)})
			}
			return list
		},
		Ours: func(m staticManifest) staticPods {
			origin := source.Origin{Source: source.URL, Location: m.Location, NodeName: m.NodeName}
			if m.IsFile {
				origin.Source = source.File
			}
			pods, errs := source.Parse([]byte(m.Text), origin)
			if len(errs) > 0 {
				return staticPods{Refused: true}
			}
			if accepted != nil {
				accepted.Add(1)
			}
			return listStaticPods(pods)
		},
		Same: func(kubelet, ours staticPods) bool {
			return kubelet.Refused || ours.Refused || reflect.DeepEqual(kubelet, ours)
		},
	}
}
