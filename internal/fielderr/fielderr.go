// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package fielderr keeps the errors of a pod's fields short enough for a log or an event, however much the manifest has
// in the field. It makes no judgement about a field.
package fielderr

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// How much of one pod gets into a log or an event.
const (
	// MaxErrors is how many errors [Short] returns, beside one that there are more.
	MaxErrors = 100

	maxQuoted = 256  // bytes of a value that is quoted
	maxText   = 1024 // bytes of the name of a field, which may have the key of a map in it, or of a detail
)

// Short returns the first errors of a list, with what they quote cut to a size that can be read. The errors of the list
// are changed. It is called once for a list, as a second call would cut it again.
func Short(errs field.ErrorList) field.ErrorList {
	if len(errs) > MaxErrors {
		rest := field.Forbidden(field.NewPath(""), fmt.Sprintf("more than %d errors, of which the first are told", MaxErrors))
		rest.Field = "pod"
		errs = append(errs[:MaxErrors:MaxErrors], rest)
	}
	for _, err := range errs {
		shorten(err)
	}
	return errs
}

// ShortOne is [Short] for an error that may be a *field.Error. Any other is returned as it is, also one that wraps a
// *field.Error.
func ShortOne(err error) error {
	if one, ok := err.(*field.Error); ok { //nolint:errorlint // one that is wrapped belongs to somebody else
		shorten(one)
	}
	return err
}

func shorten(err *field.Error) {
	err.Field, err.Detail = cut(err.Field, maxText), cut(err.Detail, maxText)
	if err.BadValue == nil {
		return
	}
	switch v := reflect.ValueOf(err.BadValue); v.Kind() {
	case reflect.String:
		if v.Len() > maxQuoted {
			err.BadValue = cut(v.String(), maxQuoted)
		}
	case reflect.Slice:
		size := 0
		for i := range v.Len() {
			if size++; v.Index(i).Kind() == reflect.String {
				size += v.Index(i).Len()
			}
		}
		if size > maxQuoted {
			err.BadValue = fmt.Sprintf("a list of %d", v.Len())
		}
	}
}

// cut returns a text of at most about that many bytes: its beginning and its length.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "... (" + strconv.Itoa(len(s)) + " bytes)"
}

// Quote returns a name for the text of an error.
func Quote(name string) string { return strconv.Quote(cut(name, maxQuoted)) }

// TooLong returns the error of a field that is larger than it may be. It does not quote the value.
func TooLong(path *field.Path, format string, args ...any) *field.Error {
	err := field.TooLong(path, nil, 0)
	err.Detail = fmt.Sprintf(format, args...)
	return err
}
