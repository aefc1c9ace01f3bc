// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// coreClient returns a client for the core group. A test with client-go calls kubernetes.NewForConfig(config) instead.
func coreClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config.APIPath, config.GroupVersion = "/api", &schema.GroupVersion{Version: "v1"}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// runScheduler is the program under test: it binds each pod without a node to the node until ctx ends.
func runScheduler(ctx context.Context, c *rest.RESTClient, node string) error {
	pods, err := c.Get().Resource("pods").Param("watch", "true").Param("fieldSelector", "spec.nodeName=").Watch(ctx)
	if err != nil {
		return err
	}
	defer pods.Stop()
	for event := range pods.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type != "ADDED" {
			continue
		}
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
		if err := c.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("binding").Body(binding).Do(ctx).Error(); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// The test of a scheduler puts nodes and pods on the server, runs the scheduler with the config of the server, and reads the result.
func ExampleServer_scheduler() {
	server := apiservertest.NewServer(apiservertest.Options{RequestLog: 100})
	defer server.Close()
	for _, name := range []string{"web-0", "web-1"} {
		err := server.Put(exampleNode("n1"), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	client, err := coreClient(server.Config())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- runScheduler(ctx, client, "n1") }()

	bound := apiservertest.Match{Verb: "create", Resource: "pods", Subresource: "binding"}
	for deadline := time.Now().Add(time.Minute); server.CountRequests(bound) < 2 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	cancel()
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	server.Close() // waits for the last response
	for _, pod := range apiservertest.List[*corev1.Pod](server) {
		fmt.Println(pod.Name, "runs on", pod.Spec.NodeName)
	}
	// Output:
	// web-0 runs on n1
	// web-1 runs on n1
}

// A server serves custom resources for the dynamic client. Put accepts unstructured objects of each kind.
func ExampleKind() {
	server := apiservertest.NewServer(apiservertest.Options{Kinds: []apiservertest.Kind{
		{Group: "example.com", Version: "v1", Kind: "Widget", Resource: "widgets", Namespaced: true, Status: true},
	}})
	defer server.Close()
	err := server.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "default", "name": "w"},
	}})
	if err != nil {
		fmt.Println(err)
	}
	client := &http.Client{Transport: server.Transport()}
	for _, path := range []string{"", "/namespaces/default/widgets/w", "/namespaces/default/gadgets/g"} {
		fmt.Println(get(client, "http://apiserver.test/apis/example.com/v1"+path))
	}
	// Output:
	// 200
	// 200
	// 404
}
