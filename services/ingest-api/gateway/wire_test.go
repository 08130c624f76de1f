package gateway

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/apidoc"
)

// described are the schemas of the description with the types that are sent or read for them.
var described = map[string]reflect.Type{
	"Problem": of[wire.Problem](), "Blob": of[wire.Blob](),
	"Waiting": of[wire.Waiting](), "Task": of[wire.Task](), "InspectedTask": of[wire.InspectedTask](), "SuspendedTask": of[wire.SuspendedTask](),
	"Transition": of[wire.Transition](), "Explanation": of[wire.Explanation](), "Said": of[wire.Said](), "Carrier": of[wire.Carrier](), "TaskStep": of[wire.TaskStep](), "Attempt": of[wire.Attempt](), "FailureGroup": of[wire.FailureGroup](),
	"TaskCounts": of[wire.TaskCounts](), "History": of[wire.History](), "Bucket": of[wire.Bucket](), "BaseTasks": of[wire.BaseTasks](), "Minute": of[wire.Minute](), "Worker": of[wire.Worker](), "Setting": of[wire.Setting](),
	"ViewRequest": of[wire.ViewRequest](), "View": of[wire.View](),
	"BulkRequest": of[wire.BulkRequest](), "BulkPreview": of[wire.BulkPreview](), "BulkOperation": of[wire.BulkOperation](),
	"CheckRequest": of[wire.CheckRequest](), "Check": of[wire.Check](), "CheckReport": of[wire.CheckReport](), "CheckRule": of[wire.CheckRule](),
	"CheckExample": of[wire.CheckExample](), "CheckRepair": of[wire.CheckRepair](), "CheckMend": of[wire.CheckMend](),
	"WorkflowApply": of[wire.WorkflowApply](), "WorkflowReply": of[wire.WorkflowReply](), "WorkflowRun": of[wire.WorkflowRun](),
	"Reason": of[wire.Reason](), "Stats": of[wire.Stats](),
	"Document": of[wire.Document](), "AcceptedTask": of[wire.AcceptedTask](), "RefusedFile": of[wire.RefusedFile](), "Segment": of[wire.Segment](), "Version": of[wire.Version](),
	"SearchRequest": of[wire.SearchRequest](), "Hit": of[wire.Hit](), "Sentence": of[wire.Sentence](), "HitGroup": of[wire.HitGroup](), "SearchAnswer": of[wire.SearchAnswer](), "BaseRequest": of[wire.BaseRequest](), "BaseChange": of[wire.BaseChange](),
	"Deletion": of[wire.Deletion](), "Rollback": of[wire.Rollback](), "Reindex": of[wire.Reindex](), "PreviewRequest": of[wire.PreviewRequest](), "PreviewReply": of[wire.PreviewReply](), "Preview": of[wire.Preview](),
	"Place": of[wire.Place](), "Model": of[wire.Model](), "Base": of[wire.Base](), "BaseCounts": of[wire.BaseCounts](), "Summary": of[wire.Summary](),
	"Key": of[wire.Key](), "CreatedKey": of[wire.CreatedKey](), "KeyRequest": of[wire.KeyRequest](), "AuditEvent": of[wire.AuditEvent](),
	"OutboxStats": of[wire.OutboxStats](), "OutboxEvent": of[wire.OutboxEvent](), "OneOutboxEvent": of[wire.OneOutboxEvent](),
	"RequeueEvents": of[wire.RequeueEvents](), "RequeuedEvents": of[wire.RequeuedEvents](),
	"Letter": of[wire.DeadLetter](), "LetterStats": of[wire.DeadLetterStats](), "ReplayLetters": of[wire.DeadLetterBulk](),
	"TopicLetter": of[wire.TopicDeadLetter](), "TopicLetterBulk": of[wire.TopicDeadLetterBulk](), "ReplayedLetters": of[wire.BulkResult](),
	"DroppedLetters": of[wire.BulkResult](),
	"Topic":          of[wire.Topic](), "TopicStats": of[wire.TopicStats](), "Group": of[wire.Group](), "GroupStats": of[wire.GroupStats](),
	"Owners": of[wire.Owners](), "Consumer": of[wire.Consumer](), "Pending": of[wire.Pending](), "Message": of[wire.Message](),
	"MessageStatus": of[wire.MessageStatus](), "TrimTopic": of[wire.TrimTopic](), "Trimmed": of[wire.Trimmed](),
	"ResetGroup": of[wire.ResetGroup](), "ResetDone": of[wire.ResetDone](), "TaskList": of[wire.List[wire.Task]](),
}

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

// choices are fields of a type that its schema has not: one of the two stands in each answer.
var choices = map[string]string{"ReplayedLetters": "dropped", "DroppedLetters": "replayed"}

// Every type of the wire fits its schema, field by field: name, kind, whether it may be null and whether it is always there.
func TestSchemasFitTheTypesOfTheWire(t *testing.T) {
	t.Parallel()
	d, err := apidoc.Load("")
	require.NoError(t, err)
	for name, goType := range described {
		schema := flat(d.Root, apidoc.Object{"$ref": "#/components/schemas/" + name})
		fitsType(t, d.Root, schema, goType, name, choices[name])
	}
	// No type of the wire is left out.
	used := map[string]bool{}
	for _, goType := range described {
		collect(goType, used)
	}
	require.Empty(t, slices.DeleteFunc(wireTypes(t), func(name string) bool { return used[name] }), "types without a schema")
}

// fitsType compares an object's schema with a struct.
func fitsType(t *testing.T, root, schema apidoc.Object, goType reflect.Type, at, but string) {
	t.Helper()
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(goType) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != but {
			fields[name] = f
		}
	}
	properties, _ := schema["properties"].(apidoc.Object)
	require.ElementsMatch(t, slices.Collect(maps.Keys(properties)), slices.Collect(maps.Keys(fields)), at)
	required := apidoc.Texts(schema["required"])
	for name, f := range fields {
		here := at + "." + name
		property := flat(root, properties[name])
		sent := len(required) > 0 // a request names what it needs, an answer what it always has
		if strings.Contains(f.Tag.Get("json"), "omit") {
			sent = false
			if name != but && choices[at] == "" {
				require.NotContains(t, required, name, "%s is left out when it is empty", here)
			}
		}
		if sent && !slices.Contains(required, name) && !requests[at] {
			require.Fail(t, here+" is always sent: list it under required")
		}
		fitsKind(t, root, property, f.Type, here)
	}
}

// requests are the schemas of bodies that a caller sends: what is not required has a default.
var requests = map[string]bool{"SearchRequest": true, "KeyRequest": true, "WorkflowApply": true, "PreviewRequest": true}

var scalars = map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer", reflect.Float64: "number"}

// fitsKind compares one property with the type of its field.
func fitsKind(t *testing.T, root, property apidoc.Object, goType reflect.Type, at string) {
	t.Helper()
	if goType.Kind() == reflect.Interface {
		return // values of several kinds, which the schema tells
	}
	if strings.HasPrefix(goType.Name(), "Optional[") {
		value, _ := goType.FieldByName("Value")
		goType = value.Type
	}
	null := false
	if options, ok := property["oneOf"].([]any); ok {
		for _, one := range options {
			if s := flat(root, one); s["type"] == "null" {
				null = true
			} else {
				property = s
			}
		}
	}
	kinds := []any{property["type"]}
	if several, ok := property["type"].([]any); ok {
		kinds, null = slices.DeleteFunc(slices.Clone(several), func(k any) bool { return k == "null" }), true
	}
	mayBeNull := goType.Kind() == reflect.Pointer || goType.Kind() == reflect.Map
	switch goType {
	case of[wire.Time](), of[wire.NullTime](), of[*time.Time]():
		require.Equal(t, "date-time", property["format"], at)
		require.Equal(t, []any{"string"}, kinds, at)
		require.Equal(t, goType == of[wire.NullTime](), null, at)
		return
	case of[wire.NullText](), of[wire.NullInt]():
		require.True(t, null, "%s is null when it is empty", at)
		mayBeNull = true
	case of[json.RawMessage](): // an object, or any JSON
		require.Contains(t, []any{"object", nil}, kinds[0], at)
		return
	}
	if null {
		require.True(t, mayBeNull, "%s is never null", at)
	}
	if goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	switch goType.Kind() {
	case reflect.Struct:
		fitsType(t, root, property, goType, at, "")
	case reflect.Slice, reflect.Array:
		require.Equal(t, []any{"array"}, kinds, at)
		fitsKind(t, root, flat(root, property["items"]), goType.Elem(), at+"[]")
	case reflect.Map:
		require.Equal(t, []any{"object"}, kinds, at)
		fitsKind(t, root, flat(root, property["additionalProperties"]), goType.Elem(), at+"{}")
	default:
		require.Equal(t, []any{scalars[goType.Kind()]}, kinds, at)
	}
}

// collect notes the names of a type and of the types in it.
func collect(goType reflect.Type, into map[string]bool) {
	switch goType.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collect(goType.Elem(), into)
	case reflect.Struct:
		name, _, _ := strings.Cut(goType.Name(), "[")
		into[name] = true
		for _, f := range reflect.VisibleFields(goType) {
			if f.Type != of[time.Time]() && f.Type.PkgPath() != "time" {
				collect(f.Type, into)
			}
		}
	}
}

// wireTypes are the names of all structs of package wire, read from its source.
func wireTypes(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../../pkg/wire/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if _, isStruct := spec.Type.(*ast.StructType); isStruct {
					names = append(names, spec.Name.Name)
				}
			}
			return true
		})
	}
	return names
}
