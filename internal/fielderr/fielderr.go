// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package fielderr shortens the errors of a pod's fields, so that they fit in a log or an event regardless of the content of the
// field. It does not validate fields.
package fielderr

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The limits of the errors of one pod in a log or an event.
const (
	// MaxErrors is the number of errors that [Short] returns, in addition to an error about the remaining ones.
	MaxErrors = 100

	maxQuoted = 256  // bytes of a quoted value
	maxText   = 1024 // bytes of a field name, which may contain the key of a map, or of a detail
)

// Short returns the first MaxErrors errors of a list, and truncates the values that they quote. It writes to the errors. It must
// be called only once for a list, because it would truncate texts again.
func Short(errs field.ErrorList) field.ErrorList {
	if len(errs) > MaxErrors {
		rest := field.Forbidden(field.NewPath(""), fmt.Sprintf("more than %d errors, of which the first are reported", MaxErrors))
		rest.Field = "pod"
		errs = append(errs[:MaxErrors:MaxErrors], rest)
	}
	for _, err := range errs {
		shortenError(err)
	}
	return errs
}

// ShortOne shortens err like [Short] if it is a *field.Error. It returns other errors unchanged, including ones that wrap a
// *field.Error.
func ShortOne(err error) error {
	if one, ok := err.(*field.Error); ok { // a wrapped error must not be written to
		shortenError(one)
	}
	return err
}

// shortenError truncates the field name, the detail and the value of err.
func shortenError(err *field.Error) {
	err.Field, err.Detail = truncate(err.Field, maxText), truncate(err.Detail, maxText)
	if err.BadValue == nil {
		return
	}
	switch v := reflect.ValueOf(err.BadValue); v.Kind() {
	case reflect.String:
		if v.Len() > maxQuoted {
			err.BadValue = truncate(v.String(), maxQuoted)
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

// truncate returns text, or its first limit bytes with its length if it is longer.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "... (" + strconv.Itoa(len(text)) + " bytes)"
}

// Quote returns name in quotes for the text of an error, truncated to a length that can be read.
func Quote(name string) string { return strconv.Quote(truncate(name, maxQuoted)) }

// TooLong returns an error for a field that exceeds a limit, with a detail in the given format. It does not quote the value.
func TooLong(path *field.Path, format string, args ...any) *field.Error {
	err := field.TooLong(path, nil, 0)
	err.Detail = fmt.Sprintf(format, args...)
	return err
}
