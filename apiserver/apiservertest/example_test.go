// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

func exampleNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// get reads a path of an API server, as any client does, and describes the response.
func get(client *http.Client, url string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return "no response"
	}
	defer response.Body.Close()
	return strconv.Itoa(response.StatusCode)
}

// A client meets several faults of an API server, one after another.
func ExampleServer() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	if err := server.Put(exampleNode("n1")); err != nil {
		fmt.Println(err)
	}
	client := &http.Client{Transport: server.Transport()}
	const url = "http://apiserver.test/api/v1/nodes/n1"
	fmt.Println("as usual:", get(client, url))

	heal := server.Inject(apiservertest.Fault{Match: apiservertest.Match{Verb: "get", Resource: "nodes"}, Times: 1, Code: http.StatusTooManyRequests})
	fmt.Println("overloaded:", get(client, url))
	heal()
	heal = server.Hang("get", "nodes")
	fmt.Println("hangs:", get(client, url))
	heal()
	heal = server.Delay("get", "", time.Millisecond)
	fmt.Println("slow:", get(client, url))
	heal()
	heal = server.Disconnect("", "nodes")
	fmt.Println("cut:", get(client, url))
	heal()
	server.SetUnavailable(true)
	fmt.Println("away:", get(client, url))
	server.SetUnavailable(false)

	fmt.Println("requests:", server.CountRequests(apiservertest.Match{Resource: "nodes"}))
	for _, r := range server.Requests(apiservertest.Match{Verb: "get"}) {
		if r.Code >= http.StatusBadRequest {
			fmt.Println("refused:", r.Verb, r.Resource, r.Name, r.Code)
		}
	}
	server.ForgetRequests()
	fmt.Println("requests:", server.CountRequests(apiservertest.Match{}))
	// Output:
	// as usual: 200
	// overloaded: 429
	// hangs: no response
	// slow: 200
	// cut: no response
	// away: no response
	// requests: 5
	// refused: get nodes n1 429
	// requests: 0
}

// A watch that has missed changes gets an ERROR event with code 410 and must list again.
func ExampleServer_Compact() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	config, stop := server.Listen(true) // for a client that needs sockets
	defer stop()
	if err := server.Put(exampleNode("n1"), exampleNode("n2")); err != nil {
		fmt.Println(err)
	}
	watched := server.ResourceVersion()
	if err := server.DeleteSilently(exampleNode("n2")); err != nil { // watches get no event
		fmt.Println(err)
	}
	server.Compact()
	server.DisconnectAll()
	_, found := apiservertest.Get[*corev1.Node](server, "", "n2")
	fmt.Println("n2:", found, "open watches:", server.OpenWatches("nodes"))
	response, err := http.Get(fmt.Sprintf("%s/api/v1/nodes?watch=true&resourceVersion=%d", config.Host, watched-1)) //nolint:noctx // The server ends the watch.
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	var event struct {
		Type   string
		Object metav1.Status
	}
	err = json.NewDecoder(response.Body).Decode(&event)
	fmt.Println(event.Type, event.Object.Code, event.Object.Message, err)
	// Output:
	// n2: false open watches: 0
	// ERROR 410 too old resource version: 1001 (1003) <nil>
}
