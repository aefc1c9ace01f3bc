// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Resource gives access to the objects of one kind, in one namespace or in all. Create one with [In].
type Resource[T Object] struct {
	client    *Client
	kind      Kind[T]
	namespace string
}

// Page is the result of one list request.
type Page[T Object] struct {
	Items           []T
	ResourceVersion string
	Continue        string // token for the next page, for ListOptions.Continue; empty: last page
	Size            int64  // bytes of the decompressed response
}

// In returns the [Resource] of a kind in a namespace. The namespace is empty for a kind without namespaces, and for lists
// and watches of all namespaces.
func In[T Object](client *Client, kind Kind[T], namespace string) Resource[T] {
	return Resource[T]{client: client, kind: kind, namespace: namespace}
}

// Get reads an object from the API server's etcd.
func (r Resource[T]) Get(ctx context.Context, name string) (T, error) {
	return r.getObject(ctx, name, &metav1.GetOptions{})
}

// GetCached reads an object from the memory of the API server. That is cheaper than a read from etcd, but the object may be
// outdated.
func (r Resource[T]) GetCached(ctx context.Context, name string) (T, error) {
	return r.getObject(ctx, name, &metav1.GetOptions{ResourceVersion: "0"})
}

func (r Resource[T]) getObject(ctx context.Context, name string, opts *metav1.GetOptions) (T, error) {
	return r.doObject(ctx, "get", name, func(c *rest.RESTClient) *rest.Request { return c.Get().VersionedParams(opts, r.client.params) })
}

// Create creates object and returns the stored object.
func (r Resource[T]) Create(ctx context.Context, object T) (T, error) {
	return r.doObject(ctx, "create", "", func(c *rest.RESTClient) *rest.Request { return c.Post().Body(object) })
}

// Update replaces an object and returns the stored object. It fails with a conflict if the stored object has a different
// resourceVersion.
func (r Resource[T]) Update(ctx context.Context, object T, subresources ...string) (T, error) {
	return r.doObject(ctx, "update", object.GetName(), func(c *rest.RESTClient) *rest.Request { return c.Put().Body(object) }, subresources...)
}

// Patch patches an object or one subresource of it, and returns the stored object.
func (r Resource[T]) Patch(ctx context.Context, name string, patchType types.PatchType, patch []byte, subresources ...string) (T, error) {
	return r.doObject(ctx, "patch", name, func(c *rest.RESTClient) *rest.Request { return c.Patch(patchType).Body(patch) }, subresources...)
}

// Delete deletes the object with this name. To protect an object that was recreated with this name, set a UID as
// precondition in opts.
func (r Resource[T]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return r.doRequest(ctx, "delete", name, nil, func(c *rest.RESTClient) *rest.Request { return c.Delete().Body(&opts) })
}

// List reads one page of at most opts.Limit objects. A limit of zero means all objects.
func (r Resource[T]) List(ctx context.Context, opts metav1.ListOptions) (Page[T], error) {
	if !r.isUsable() {
		return Page[T]{}, errNoClient
	}
	list := r.kind.newList()
	limit := &responseLimit{limit: r.client.maxList}
	err := r.doRequest(context.WithValue(ctx, limitKey{}, limit), "list", "", list, func(c *rest.RESTClient) *rest.Request { return c.Get().VersionedParams(&opts, r.client.params) })
	if err != nil {
		return Page[T]{}, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return Page[T]{}, r.wrapError("list", "", err)
	}
	if m.GetResourceVersion() == "" { // a proxy may send an empty response, which would empty every store
		return Page[T]{}, r.wrapError("list", "", errUndecodable)
	}
	page := Page[T]{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue(), Size: limit.read}
	err = meta.EachListItemWithAlloc(list, func(opts runtime.Object) error {
		object, ok := opts.(T)
		if !ok {
			return errUndecodable
		}
		page.Items = append(page.Items, object)
		return nil
	})
	if err != nil {
		return Page[T]{}, r.wrapError("list", "", err)
	}
	return page, nil
}

// CreateToken requests a token for the service account called account in namespace. The token is in the status of the
// result. Errors never contain the token.
func CreateToken(ctx context.Context, client *Client, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	r := In(client, ServiceAccounts, namespace)
	r.kind.secret = true
	answer := &authenticationv1.TokenRequest{}
	err := r.doRequest(ctx, "create", account, answer, func(client *rest.RESTClient) *rest.Request { return client.Post().Body(request) }, "token")
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// doObject sends a request for the named object and returns the object in the response. newRequest builds the request;
// doRequest sets its path.
func (r Resource[T]) doObject(ctx context.Context, verb, name string, newRequest func(*rest.RESTClient) *rest.Request, subresources ...string) (T, error) {
	var none T
	if !r.isUsable() {
		return none, errNoClient
	}
	into := r.kind.newObject()
	if err := r.doRequest(ctx, verb, name, into, newRequest, subresources...); err != nil {
		return none, err
	}
	if got := into.GetName(); got == "" || name != "" && got != name {
		return none, r.wrapError(verb, name, errUndecodable, subresources...)
	}
	return into, nil
}

// errNoClient is the error of a zero Resource.
var errNoClient = errors.New("kubeapi: the resource has no client or no kind: want that of In, with a kind of this package")

func (r Resource[T]) isUsable() bool { return r.client != nil && r.kind.newObject != nil }

// doRequest sends the request that newRequest builds, with retries, and decodes the response into the object into. newRequest
// must not set the path. If into is nil, the response is discarded.
func (r Resource[T]) doRequest(ctx context.Context, verb, name string, into runtime.Object, newRequest func(*rest.RESTClient) *rest.Request, subresources ...string) error {
	if !r.isUsable() {
		return errNoClient
	}
	err := r.client.doWithRetry(ctx, func(ctx context.Context) error {
		answer := r.setPath(newRequest(r.client.rest[r.kind.gv]), name, subresources).MaxRetries(0).Do(ctx)
		err := answer.Error()
		if err == nil && into != nil {
			err = answer.Into(into)
		}
		return sanitizeError(err, ctx.Err(), r.kind.secret)
	})
	return r.wrapError(verb, name, err, subresources...)
}

// setPath sets the path of request: namespace, resource, name and subresources.
func (r Resource[T]) setPath(request *rest.Request, name string, subresources []string) *rest.Request {
	request.NamespaceIfScoped(r.namespace, r.kind.namespaced && r.namespace != "").Resource(r.kind.resource)
	if name != "" {
		request.Name(name)
	}
	return request.SubResource(subresources...)
}

// wrapError returns err as an [*Error] with the verb, resource and name of the request. It returns nil if err is nil.
func (r Resource[T]) wrapError(verb, name string, err error, subresources ...string) error {
	if err == nil {
		return nil
	}
	if r.namespace != "" {
		name = r.namespace + "/" + name
	}
	resource := strings.Join(append([]string{r.kind.resource}, subresources...), "/")
	return &Error{Verb: verb, Resource: resource, Name: name, Err: sanitizeError(err, nil, r.kind.secret)}
}
