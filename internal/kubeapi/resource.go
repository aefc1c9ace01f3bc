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

// Resource is the objects of a kind, in one namespace or in all.
type Resource[T Object] struct {
	client    *Client
	kind      Kind[T]
	namespace string
}

// Page is what one list request returned.
type Page[T Object] struct {
	Items           []T
	ResourceVersion string
	Continue        string // not empty: there is more, for ListOptions.Continue
	Size            int64  // bytes of the answer, after decompression
}

// In returns the objects of a kind. The namespace is empty for kinds without one, and for lists and watches of all.
func In[T Object](c *Client, k Kind[T], namespace string) Resource[T] {
	return Resource[T]{client: c, kind: k, namespace: namespace}
}

// Get reads an object from the API server's store.
func (r Resource[T]) Get(ctx context.Context, name string) (T, error) {
	return r.getObject(ctx, name, &metav1.GetOptions{})
}

// GetCached reads an object from the API server's memory, which costs it less and may be a little old.
func (r Resource[T]) GetCached(ctx context.Context, name string) (T, error) {
	return r.getObject(ctx, name, &metav1.GetOptions{ResourceVersion: "0"})
}

func (r Resource[T]) getObject(ctx context.Context, name string, o *metav1.GetOptions) (T, error) {
	return r.doObject(ctx, "get", name, func(c *rest.RESTClient) *rest.Request { return c.Get().VersionedParams(o, r.client.params) })
}

// Create writes a new object and returns what the API server made of it.
func (r Resource[T]) Create(ctx context.Context, o T) (T, error) {
	return r.doObject(ctx, "create", "", func(c *rest.RESTClient) *rest.Request { return c.Post().Body(o) })
}

// Update writes an object in place of that of its resourceVersion, and returns what the API server made of it.
func (r Resource[T]) Update(ctx context.Context, o T, subresources ...string) (T, error) {
	return r.doObject(ctx, "update", o.GetName(), func(c *rest.RESTClient) *rest.Request { return c.Put().Body(o) }, subresources...)
}

// Patch changes an object, or its subresource, and returns it.
func (r Resource[T]) Patch(ctx context.Context, name string, t types.PatchType, patch []byte, subresources ...string) (T, error) {
	return r.doObject(ctx, "patch", name, func(c *rest.RESTClient) *rest.Request { return c.Patch(t).Body(patch) }, subresources...)
}

// Delete deletes an object. Preconditions of o guard against another of the same name.
func (r Resource[T]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return r.doRequest(ctx, "delete", name, nil, func(c *rest.RESTClient) *rest.Request { return c.Delete().Body(&o) })
}

// List reads one page: o.Limit objects, or all.
func (r Resource[T]) List(ctx context.Context, o metav1.ListOptions) (Page[T], error) {
	if !r.isUsable() {
		return Page[T]{}, errNoClient
	}
	list := r.kind.newList()
	limit := &responseLimit{limit: r.client.maxList}
	err := r.doRequest(context.WithValue(ctx, limitKey{}, limit), "list", "", list, func(c *rest.RESTClient) *rest.Request { return c.Get().VersionedParams(&o, r.client.params) })
	if err != nil {
		return Page[T]{}, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return Page[T]{}, r.wrapError("list", "", err)
	}
	if m.GetResourceVersion() == "" { // as something between here and the API server may answer: it would empty every store
		return Page[T]{}, r.wrapError("list", "", errUndecodable)
	}
	page := Page[T]{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue(), Size: limit.read}
	err = meta.EachListItemWithAlloc(list, func(o runtime.Object) error {
		object, ok := o.(T)
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

// CreateToken asks for a token of a service account, as [authenticationv1.TokenRequest] says.
func CreateToken(ctx context.Context, c *Client, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	r := In(c, ServiceAccounts, namespace)
	r.kind.secret = true
	answer := &authenticationv1.TokenRequest{}
	err := r.doRequest(ctx, "create", account, answer, func(c *rest.RESTClient) *rest.Request { return c.Post().Body(request) }, "token")
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// object runs a request whose answer is an object of the kind.
func (r Resource[T]) doObject(ctx context.Context, verb, name string, request func(*rest.RESTClient) *rest.Request, subresources ...string) (T, error) {
	var none T
	if !r.isUsable() {
		return none, errNoClient
	}
	into := r.kind.newObject()
	if err := r.doRequest(ctx, verb, name, into, request, subresources...); err != nil {
		return none, err
	}
	if got := into.GetName(); got == "" || name != "" && got != name {
		return none, r.wrapError(verb, name, errUndecodable, subresources...)
	}
	return into, nil
}

// errNoClient is what a zero Resource answers.
var errNoClient = errors.New("kubeapi: the resource has no client or no kind: want that of In, with a kind of this package")

func (r Resource[T]) isUsable() bool { return r.client != nil && r.kind.newObject != nil }

// do runs a request, and decodes its answer if into is not nil.
func (r Resource[T]) doRequest(ctx context.Context, verb, name string, into runtime.Object, request func(*rest.RESTClient) *rest.Request, subresources ...string) error {
	if !r.isUsable() {
		return errNoClient
	}
	err := r.client.doWithRetry(ctx, func(ctx context.Context) error {
		answer := r.setPath(request(r.client.rest[r.kind.gv]), name, subresources).MaxRetries(0).Do(ctx)
		err := answer.Error()
		if err == nil && into != nil {
			err = answer.Into(into)
		}
		return sanitizeError(err, ctx.Err(), r.kind.secret)
	})
	return r.wrapError(verb, name, err, subresources...)
}

// at sets the path of a request.
func (r Resource[T]) setPath(request *rest.Request, name string, subresources []string) *rest.Request {
	request.NamespaceIfScoped(r.namespace, r.kind.namespaced && r.namespace != "").Resource(r.kind.resource)
	if name != "" {
		request.Name(name)
	}
	return request.SubResource(subresources...)
}

// wrap says what a request was for.
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
