// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/lifecycle/source"
)

func ExampleParse() {
	pods, errs := source.Parse([]byte(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: web
    imagee: nginx:1
---
apiVersion: v1
kind: Pod
metadata: {name: db}
spec:
  containers:
  - {name: db, image: "db:1"}
`), source.Origin{Source: source.File, Location: "pods.yaml", NodeName: "edge-1"})
	for _, p := range pods {
		fmt.Println(p.Namespace, p.Name)
	}
	for _, err := range errs {
		fmt.Println(err)
	}
	// Output:
	// default db-edge-1
	// pods.yaml:8: spec.containers[0].imagee: unknown field
}

func ExampleStatic() {
	pod, err := source.Static(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1"}}},
	}, source.Origin{NodeName: "edge-1"})
	if err != nil {
		panic(err)
	}
	fmt.Println(pod.Namespace, pod.Name, pod.UID, pod.Spec.RestartPolicy)

	_, err = source.Static(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db"}}, source.Origin{})
	fmt.Println(err)
	// Output:
	// default web-edge-1 b21734a203ae86941e1f74f4999f19ad Always
	// make static pod /db: spec.containers: Required value
}

func ExampleNewDir() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(manifest("web", "nginx")), 0o644); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = source.NewDir(dir, source.DirOptions{}).Run(ctx, func(u source.Update) {
		if !u.Incomplete {
			fmt.Println(len(u.Pods), "pod,", len(u.Errs), "errors")
			cancel()
		}
	})
	// Output: 1 pod, 0 errors
}

func ExampleNewHandler() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	h := source.NewHandler(dir, source.HandlerOptions{NodeName: "edge-1"})
	put := func(name, manifest string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/"+name, strings.NewReader(manifest)))
		fmt.Print(w.Code, " ", w.Body.String()[:min(w.Body.Len(), 70)], "\n")
	}
	put("web.yaml", manifest("web", "nginx"))
	put("db.yaml", "apiVersion: v1\nkind: Pods\n")
	// Output:
	// 201 {"name":"web.yaml","pods":[{"kind":"Pod","apiVersion":"v1","metadata":
	// 422 db.yaml:2: kind: want Pod, PodList or List, got "Pods"
}

func ExampleNewHTTP() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, manifest("web", "nginx"))
	}))
	defer server.Close()
	u := source.NewHTTP(server.URL, source.HTTPOptions{NodeName: "edge-1"}).Fetch(context.Background(), time.Now())
	fmt.Println(u.Pods[0].Name)
	// Output: web-edge-1
}

// The annotations of a static pod describe its manifest to the mirror pod and to users.
func ExampleParse_annotations() {
	pods, _ := source.Parse([]byte(manifest("web", "nginx")), source.Origin{
		Source: source.File, Location: "web.yaml", Seen: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	})
	for _, pod := range pods {
		fmt.Println("from a", pod.Annotations[source.AnnotationSource], "read at", pod.Annotations[source.AnnotationSeen])
		fmt.Println(pod.Annotations[source.AnnotationHash] == string(pod.UID))
	}
	// Output:
	// from a file read at 2026-01-02T03:04:05Z
	// true
}

// A client uploads a manifest and lists the directory.
func ExampleManifestList() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	server := httptest.NewServer(source.NewHandler(dir, source.HandlerOptions{NodeName: "edge-1"}))
	defer server.Close()
	call := func(method, path, body string, answer any) {
		request, err := http.NewRequestWithContext(context.Background(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			panic(err)
		}
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
			fmt.Println(response.Status, err)
		}
	}
	var written source.Manifest
	call(http.MethodPut, "/web.yaml", manifest("web", "nginx"), &written)
	fmt.Println("wrote", written.Pods[0].Name)
	var list source.ManifestList
	call(http.MethodGet, "/", "", &list)
	for _, m := range list.Manifests {
		fmt.Println(m.Name, len(m.Pods), "pod,", len(m.Errors), "errors")
	}
	// Output:
	// wrote web-edge-1
	// web.yaml 1 pod, 0 errors
}
