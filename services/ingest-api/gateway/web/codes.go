package web

import (
	"net/http"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// The gateway's own error codes; those of tasks and files come from taskstate and ingest.
const (
	CodeInvalidParameter     = "INVALID_PARAMETER"
	CodeUnknownParameter     = "UNKNOWN_PARAMETER"
	CodeBadCursor            = "BAD_CURSOR"
	CodeBadJSON              = "BAD_JSON"
	CodeBadMultipart         = "BAD_MULTIPART"
	CodeIncompleteBody       = "INCOMPLETE_BODY"
	CodeTooManyParts         = "TOO_MANY_PARTS"
	CodeFileRequired         = "FILE_REQUIRED"
	CodeInvalidKey           = "IDEMPOTENCY_KEY_INVALID"
	CodeInvalidField         = "INVALID_FIELD"
	CodeFieldTooLong         = "FIELD_TOO_LONG"
	CodeInvalidText          = "INVALID_TEXT"
	CodeChatRequired         = "CHAT_ID_REQUIRED"
	CodeUnauthenticated      = "UNAUTHENTICATED"
	CodeForbidden            = "FORBIDDEN"
	CodeScope                = "INSUFFICIENT_SCOPE"
	CodeCrossOrigin          = "CROSS_ORIGIN"
	CodeHostNotAllowed       = "HOST_NOT_ALLOWED"
	CodeNotFound             = "NOT_FOUND"
	CodeTaskNotFound         = "TASK_NOT_FOUND"
	CodeDocumentNotFound     = "DOCUMENT_NOT_FOUND"
	CodeNoDeletion           = "DELETION_NOT_FOUND"
	CodeViewNotFound         = "VIEW_NOT_FOUND"
	CodeBulkNotFound         = "BULK_OPERATION_NOT_FOUND"
	CodeCheckNotFound        = "CHECK_NOT_FOUND"
	CodeCheckRunning         = "CHECK_RUNNING"
	CodeVersionNotFound      = "VERSION_NOT_FOUND"
	CodeVersionVisible       = "VERSION_IS_VISIBLE"
	CodeVersionGone          = "VERSION_GONE"
	CodeBaseNotFound         = "KNOWLEDGE_BASE_NOT_FOUND"
	CodeAPIKeyNotFound       = "API_KEY_NOT_FOUND"
	CodeEventNotFound        = "EVENT_NOT_FOUND"
	CodeEventNotDead         = "EVENT_NOT_DEAD"
	CodeDeadLetterNotFound   = "LETTER_NOT_FOUND"
	CodeDeadLetterUnreadable = "LETTER_UNREADABLE"
	CodeDeadLetterIsRow      = "LETTER_IS_A_ROW"
	codeNoDeadLetterStream   = "NO_DEAD_LETTER_STREAM"
	CodeDeadLetterReplayed   = "LETTER_REPLAYED"
	CodeTopicNotFound        = "TOPIC_NOT_FOUND"
	CodeGroupNotFound        = "GROUP_NOT_FOUND"
	CodeWorkerNotFound       = "WORKER_NOT_FOUND"
	CodeGroupLive            = "GROUP_HAS_MEMBERS"
	CodeMessageNotFound      = "MESSAGE_NOT_FOUND"
	codeOtherLayout          = "OTHER_KEY_LAYOUT"
	codeQueueData            = "QUEUE_DATA_UNREADABLE"
	CodeMethodNotAllowed     = "METHOD_NOT_ALLOWED"
	codeRequestTimeout       = "REQUEST_TIMEOUT"
	CodeUploadExpired        = "UPLOAD_EXPIRED"
	CodeUploadTooLong        = "UPLOAD_TOO_LONG"
	CodeUploadTooSlow        = "UPLOAD_TOO_SLOW"
	CodeBaseExists           = "KNOWLEDGE_BASE_EXISTS"
	CodeBaseNotEmpty         = "KNOWLEDGE_BASE_NOT_EMPTY"
	CodeKeyInUse             = "IDEMPOTENCY_KEY_IN_USE"
	codeSuperseded           = "SUPERSEDED"
	codeDocumentDeleted      = "DOCUMENT_DELETED"
	CodePrecondition         = "PRECONDITION_FAILED"
	CodeTooLarge             = "PAYLOAD_TOO_LARGE"
	CodeUnsupportedMedia     = "UNSUPPORTED_MEDIA_TYPE"
	CodeRange                = "RANGE_NOT_SATISFIABLE"
	CodeKeyReused            = "IDEMPOTENCY_KEY_REUSED"
	CodeRateLimited          = "RATE_LIMITED"
	CodeLoginLimited         = "TOO_MANY_FAILED_LOGINS"
	codeClientGone           = "CLIENT_CLOSED_REQUEST"
	CodeInternal             = "INTERNAL"
	codeLoginNotBegun        = "LOGIN_NOT_BEGUN"
	codeLoginMismatch        = "LOGIN_MISMATCH"
	codeLoginUsed            = "LOGIN_USED"
	codeLoginDenied          = "LOGIN_DENIED"
	codeLoginSubject         = "LOGIN_SUBJECT"
	codeLoginAudience        = "LOGIN_AUDIENCE"
	codeLoginClock           = "LOGIN_CLOCK"
	codeLoginProvider        = "LOGIN_PROVIDER"
	codeLoginUnavailable     = "LOGIN_PROVIDER_UNAVAILABLE"
	CodeBacklogFull          = "BACKLOG_FULL"
	CodeUnavailable          = "UNAVAILABLE"
	codeQueueUnavailable     = "QUEUE_UNAVAILABLE"
	CodeOutcomeUnknown       = "OUTCOME_UNKNOWN"
	CodeStopping             = "SHUTTING_DOWN"
	CodeTooManyStreams       = "TOO_MANY_STREAMS"
	CodeUserStreams          = "TOO_MANY_STREAMS_OF_USER"
	CodeUserUploads          = "TOO_MANY_UPLOADS_OF_USER"
	CodeTimeout              = "TIMEOUT"
	CodeDiskFull             = "DISK_FULL"
	CodeNoFolder             = "UPLOAD_FOLDER_UNAVAILABLE"
	CodeNoResources          = "OUT_OF_RESOURCES"
	statusClientGone         = 499 // nobody reads it; it keeps such requests apart in log and metrics
	defaultRetryAfterSecs    = 30  // when a full backlog or a lost database names no time
)

// errorKind is what the outside learns of one sort of error.
type errorKind struct {
	Status  int
	Message string // used when the error brings none of its own
	Remedy  string // what the caller can do
}

// Kinds is the one table from error code to answer; the OpenAPI document lists it.
var Kinds = map[string]errorKind{
	CodeInvalidParameter:   {http.StatusBadRequest, "A parameter of the request is not valid.", "Correct the parameter that the message names; it says what is allowed."},
	CodeUnknownParameter:   {http.StatusBadRequest, "The request has a parameter that this address does not know.", "Leave it out, or correct its name; /openapi.json lists the parameters."},
	CodeBadCursor:          {http.StatusBadRequest, "The cursor is not one that this list gave out.", "Start again without a cursor, and use nextCursor as it is, with the same sort."},
	CodeBadJSON:            {http.StatusBadRequest, "The body is not the JSON object that is expected here.", "Correct the place that the message names."},
	CodeBadMultipart:       {http.StatusBadRequest, "The body is not a well-formed multipart form.", "Send multipart/form-data with a boundary, as `curl -F file=@name` does."},
	CodeIncompleteBody:     {http.StatusBadRequest, "The body ended before it was complete.", "Send the request again; with the same Idempotency-Key nothing is taken in twice."},
	CodeTooManyParts:       {http.StatusBadRequest, "The form has more than 64 parts.", "Send fewer files in one request."},
	CodeFileRequired:       {http.StatusBadRequest, "The form has no part `file` with a file name.", "Send at least one file: `curl -F file=@name`."},
	CodeInvalidKey:         {http.StatusBadRequest, "The Idempotency-Key is not valid.", "Use 1 to 180 printable ASCII characters, for instance a UUID."},
	CodeInvalidField:       {http.StatusUnprocessableEntity, "A field has a value that is not allowed.", "Correct the field that the message names; it says what is allowed."},
	CodeFieldTooLong:       {http.StatusUnprocessableEntity, "A field is too long.", "Shorten the field that the message names."},
	CodeInvalidText:        {http.StatusUnprocessableEntity, "A field is not valid UTF-8 text.", "Send the field that the message names as UTF-8 without control characters."},
	CodeChatRequired:       {http.StatusUnprocessableEntity, "The request names no chat.", "Send chatId, or metadata.chat_id: whose conversation the workflow is about; any text of your own will do."},
	CodeUnauthenticated:    {http.StatusUnauthorized, "This address needs a valid API key or token.", "Send `Authorization: Bearer mw_live_…`; ask an operator for a key if yours has ended."},
	codeLoginNotBegun:      {http.StatusBadRequest, "No log-in was begun in this browser in the last ten minutes.", "Log in again, at this address, with cookies allowed."},
	codeLoginMismatch:      {http.StatusBadRequest, "The identity provider's answer belongs to another log-in.", "Log in again; one tab is enough."},
	codeLoginUsed:          {http.StatusBadRequest, "The identity provider's answer was used before, or is too old.", "Log in again."},
	codeLoginDenied:        {http.StatusForbidden, "The identity provider did not allow the log-in.", "Ask its administrator whether you may use this application."},
	codeLoginSubject:       {http.StatusForbidden, "The identity provider's name for you (sub) cannot be a user id.", "Ask an operator: a user id has 1 to 190 characters, none of them invisible, and is not local or system."},
	codeLoginAudience:      {http.StatusBadGateway, "The identity provider's answer is for another application.", "Ask an operator to compare OIDC_ISSUER and OIDC_CLIENT_ID with the provider's settings."},
	codeLoginClock:         {http.StatusBadGateway, "The clocks of the identity provider and of this service differ by more than 30 seconds.", "Ask an operator to set them."},
	codeLoginProvider:      {http.StatusBadGateway, "The identity provider and the settings of this service do not fit.", "Ask an operator: the log of ingest-api says what is wrong; the settings are OIDC_*."},
	codeLoginUnavailable:   {http.StatusServiceUnavailable, "The identity provider does not answer.", "Try again in a minute, or log in with an API key."},
	CodeForbidden:          {http.StatusForbidden, "This address needs the operator role.", "Use a key or token with the operator role."},
	CodeScope:              {http.StatusForbidden, "The key or token is not good for this.", "Use one that is good for what the message names, or ask an operator for one."},
	CodeCrossOrigin:        {http.StatusForbidden, "A browser sent this request for another site.", "Call the API from its own origin or from a program. A proxy before it must let the Host header through."},
	CodeHostNotAllowed:     {http.StatusForbidden, "With AUTH_MODE=none only requests to this machine's own loopback names are answered.", "Use http://127.0.0.1 or http://localhost, or run with AUTH_MODE=keys."},
	CodeNotFound:           {http.StatusNotFound, "There is nothing at this address.", "Look up the address in /docs."},
	CodeTaskNotFound:       {http.StatusNotFound, "There is no such task.", "Check the id; only tasks of your own can be seen."},
	CodeDocumentNotFound:   {http.StatusNotFound, "There is no such document.", "Check the id; only documents of your own can be seen, and deleted ones are gone."},
	CodeViewNotFound:       {http.StatusNotFound, "There is no such saved view.", "Check the id; views of your own can be deleted, and by operators all."},
	CodeBulkNotFound:       {http.StatusNotFound, "There is no such bulk operation.", "Check the id; only operations of your own can be seen."},
	CodeCheckNotFound:      {http.StatusNotFound, "There is no such check.", "GET /internal/fsck lists the checks."},
	CodeCheckRunning:       {http.StatusConflict, "Another check has not ended.", "Wait for its end, or withdraw it: DELETE /internal/tasks/{taskId} with the id that the message names."},
	CodeNoDeletion:         {http.StatusNotFound, "There is no receipt of a deletion.", "Check the id; only documents of your own that were deleted have one, since migration 020."},
	CodeVersionNotFound:    {http.StatusNotFound, "The document never had this version visible.", "Leave version out to go back to the last one before the visible one."},
	CodeBaseNotFound:       {http.StatusNotFound, "There is no such knowledge base.", "Check the id or name; GET /api/knowledge/bases lists yours."},
	CodeAPIKeyNotFound:     {http.StatusNotFound, "There is no such API key.", "GET /internal/keys lists the keys with their ids."},
	CodeEventNotFound:      {http.StatusNotFound, "There is no such event.", "GET /internal/outbox/events lists them; sent ones are removed after OUTBOX_RETENTION_HOURS."},
	CodeDeadLetterNotFound: {http.StatusNotFound, "There is no such dead letter.", "GET /internal/dlq lists them; a replayed or dropped one is gone."},
	CodeTopicNotFound:      {http.StatusNotFound, "There is no such topic.", "GET /internal/mq/topics lists them; a single stream is named by its key and kind=stream."},
	CodeWorkerNotFound:     {http.StatusNotFound, "There is no such worker process.", "GET /internal/workers lists those that lived in the last hour."},
	CodeGroupNotFound:      {http.StatusNotFound, "There is no such group.", "GET /internal/mq/topics/{topic}/groups lists them."},
	CodeMessageNotFound:    {http.StatusNotFound, "The message is not known.", "Statuses are kept for three days, and only by topics that were made with them; check the UUID."},
	codeNoDeadLetterStream: {http.StatusNotFound, "There is no dead letter stream here.", "Ask for source=kafka or source=table: the rows with status DEAD. INGEST_REDIS_DLQ_STREAM_KEY names the stream, REDIS_URL its server."},
	CodeMethodNotAllowed:   {http.StatusMethodNotAllowed, "This address does not answer that method.", "Use one of the methods in the Allow header."},
	CodeUploadTooLong:      {http.StatusRequestTimeout, "The request took longer than an upload may.", "Send fewer or smaller files in one request, or ask the operator to raise UPLOAD_MAX_DURATION."},
	CodeUploadTooSlow:      {http.StatusRequestTimeout, "The upload is slower than is allowed.", "Send it over a faster connection, or ask the operator to lower UPLOAD_MIN_BYTES_PER_SECOND."},
	CodeUploadExpired:      {http.StatusRequestTimeout, "The request took so long that its received file is gone.", "Send the file again; send many files in several requests."},
	codeRequestTimeout:     {http.StatusRequestTimeout, "The body did not arrive in time.", "Send the request again on a steadier connection."},

	CodeBaseExists:                 {http.StatusConflict, "A knowledge base of this name exists.", "Use it, or choose another name."},
	CodeEventNotDead:               {http.StatusConflict, "The event is not DEAD.", "Nothing needs to be done: it is sent, or will be."},
	CodeDeadLetterUnreadable:       {http.StatusConflict, "The dead letter is a delivery that could not be read, and names no task.", "Look at its fields (raw), mend who wrote it, then drop it."},
	CodeDeadLetterReplayed:         {http.StatusConflict, "The dead letter was replayed before.", "Nothing needs to be done; drop it when it is not wanted any more."},
	CodeGroupLive:                  {http.StatusConflict, "The group has live members.", "Stop them, or wait until their leases are over, or send force=true."},
	codeOtherLayout:                {http.StatusConflict, "The topic was written with another layout of keys.", "Use a service that is configured for that layout (one Redis or a cluster)."},
	codeQueueData:                  {http.StatusConflict, "What Redis holds there is not of this queue.", "Look at the key with redis-cli; something else writes to it."},
	CodeDeadLetterIsRow:            {http.StatusConflict, "The dead letter is a row with status DEAD; there is no entry to drop.", "Replay it, or delete its document."},
	CodeBaseNotEmpty:               {http.StatusConflict, "The knowledge base holds documents.", "Delete them first, or send cascade=true to delete them with it."},
	CodeKeyInUse:                   {http.StatusConflict, "A request with this Idempotency-Key is still being received.", "Wait for its answer, or send this one again in a moment."},
	taskstate.CodeNotReplayable:    {http.StatusConflict, "The task is in a state in which it cannot be run again.", "Wait for it, or send the document again with force=true."},
	taskstate.CodeSuspended:        {http.StatusConflict, "The task is suspended and waits for an operator.", "Ask an operator to resume it: POST /internal/tasks/{taskId}/resume."},
	taskstate.CodeNotCancelable:    {http.StatusConflict, "The task has already ended.", "Nothing is left to cancel; delete the document to take it out."},
	codeSuperseded:                 {http.StatusConflict, "A later upload of this document is visible.", "Nothing needs to be done; send the file again if the older content is wanted."},
	codeDocumentDeleted:            {http.StatusConflict, "The task's document or file is gone.", "Upload the file again."},
	CodeVersionVisible:             {http.StatusConflict, "This version is the visible one.", "Nothing needs to be done."},
	CodeVersionGone:                {http.StatusConflict, "The content of this version is not kept.", "Upload the file again, as a new version of the document: PUT /api/knowledge/documents/{documentId}."},
	CodePrecondition:               {http.StatusPreconditionFailed, "It has changed since it was read.", "Read it again and repeat the change with the new ETag."},
	CodeTooLarge:                   {http.StatusRequestEntityTooLarge, "The upload is too large.", "Split the file, or ask the operator to raise UPLOAD_MAX_BYTES."},
	CodeRange:                      {http.StatusRequestedRangeNotSatisfiable, "The Range header asks for bytes that the file does not have.", "Ask for bytes within the length that Content-Range names, or leave Range out."},
	CodeUnsupportedMedia:           {http.StatusUnsupportedMediaType, "The request's Content-Type is not answered here.", "Send multipart/form-data for uploads and application/json for everything else."},
	CodeKeyReused:                  {http.StatusUnprocessableEntity, "This Idempotency-Key was used with other content.", "Use a new key for new content."},
	CodeRateLimited:                {http.StatusTooManyRequests, "Too many uploads in a short time.", "Wait for the seconds in Retry-After."},
	CodeLoginLimited:               {http.StatusTooManyRequests, "Too many failed logins from this address.", "Wait for the seconds in Retry-After, then use a valid key."},
	codeClientGone:                 {statusClientGone, "The caller went away before the answer.", "Nothing; this is seen in logs only."},
	CodeInternal:                   {http.StatusInternalServerError, "Something went wrong on our side.", "Try again; if it stays, give the operator the requestId."},
	CodeBacklogFull:                {http.StatusServiceUnavailable, "Too much work is waiting.", "Wait for the seconds in Retry-After."},
	CodeUnavailable:                {http.StatusServiceUnavailable, "The database does not answer.", "Try again in a moment; an operator sees the cause in /readyz."},
	codeQueueUnavailable:           {http.StatusServiceUnavailable, "The queue's server does not answer.", "Try again in a moment; an operator sees the cause in /readyz."},
	CodeOutcomeUnknown:             {http.StatusServiceUnavailable, "The database went away before it answered; the change may have been made.", "Send the request again; with an Idempotency-Key nothing is done twice."},
	CodeStopping:                   {http.StatusServiceUnavailable, "The service is stopping.", "Send the request again; another instance will answer."},
	CodeUserStreams:                {http.StatusTooManyRequests, "You have too many event streams open.", "Close some, or poll the task instead."},
	CodeUserUploads:                {http.StatusTooManyRequests, "You have too many uploads open, or they hold too many bytes.", "Wait until some have ended, then send it again."},
	CodeTooManyStreams:             {http.StatusServiceUnavailable, "Too many event streams are open.", "Close some, or poll the task instead."},
	CodeTimeout:                    {http.StatusGatewayTimeout, "It took too long.", "Try again; an upload with the same Idempotency-Key is taken in once, and a shorter query takes less time."},
	CodeNoFolder:                   {http.StatusServiceUnavailable, "The service does not see the folder of the uploads.", "Try again in a moment; an operator sees the cause in /readyz."},
	CodeNoResources:                {http.StatusServiceUnavailable, "The service has no file descriptors, memory or rights left for the upload.", "Try again in a moment; an operator raises the limits of the process (ulimit -n) or mends the rights of UPLOAD_DIR."},
	CodeDiskFull:                   {http.StatusInsufficientStorage, "There is no space left for uploads.", "An operator has to free space under UPLOAD_DIR."},
	string(ingest.CodeEmpty):       {http.StatusUnprocessableEntity, "The file has no content.", "Send a file with text in it."},
	string(ingest.CodeEncrypted):   {http.StatusUnprocessableEntity, "The file needs a password.", "Remove the password and send it again."},
	string(ingest.CodeCorrupt):     {http.StatusUnprocessableEntity, "The file cannot be read.", "Open and save it again with its own program, then send it."},
	string(ingest.CodeNeedsOCR):    {http.StatusUnprocessableEntity, "The file holds pictures of text only.", "Run a text recognition over it and send the result."},
	string(ingest.CodeEncoding):    {http.StatusUnprocessableEntity, "The text's character set is not known.", "Save it as UTF-8 and send it again."},
	string(ingest.CodeDimension):   {http.StatusConflict, "The embedding model's vectors do not fit this knowledge base.", "An operator sets the model that this one was made with (EMBEDDING_PREVIOUS_*), or reindexes it, and resumes its suspended tasks."},
	string(ingest.CodeFileMissing): {http.StatusConflict, "The stored file is gone.", "Upload the file again."},
	string(ingest.CodeFileDamaged): {http.StatusConflict, "The stored file is damaged: its bytes are not those that were uploaded.", "Upload the file again: the same bytes take its place."},
	string(ingest.CodeThrottled):   {http.StatusServiceUnavailable, "A service that is needed asks us to wait.", "Wait for the seconds in Retry-After."},
	workflow.CodeUnknown:           {http.StatusUnprocessableEntity, "No worker that runs now knows this workflow.", "Correct workflowId and ask again; or an operator adds it to WORKFLOWS_FILE, then resumes the task."},
	workflow.CodePayload:           {http.StatusUnprocessableEntity, "The payload does not fit the workflow.", "Correct the place that the message names, and ask again."},
	workflow.CodeResult:            {http.StatusBadGateway, "The workflow's result is no JSON, or has more than 256 KiB.", "Whoever wrote the workflow returns less, or the name of where it is kept."},
	workflow.CodeRefused:           {http.StatusBadGateway, "The workflow's service refuses the request.", "Look at the task's lastError, which has the service's words."},
	workflow.CodeFailed:            {http.StatusBadGateway, "The workflow failed.", "It is tried again by itself; look at the task's explain."},
	workflows.CodeNoMessage:        {http.StatusConflict, "The message was not ingested, so that its attachments are not.", "Retry the message's task, and then this one."},
	workflows.CodeURLForbidden:     {http.StatusUnprocessableEntity, "This address may not be fetched.", "Use a public http or https address; an operator allows others with INGEST_URL_NETWORKS."},
	workflows.CodeURLRefused:       {http.StatusBadGateway, "The server does not give what is at this address.", "Open the address in a browser that is not logged in; correct it and ask again."},
	workflows.CodeURLFailed:        {http.StatusBadGateway, "The address could not be fetched.", "It is tried again by itself; look at the task's explain."},
	taskrun.CodeUnknownType:        {http.StatusUnprocessableEntity, "No worker that runs now does this type of task.", "An operator starts workers of a newer version, then resumes the task."},
	string(ingest.CodeStalled):     {http.StatusServiceUnavailable, "The work made no progress for too long.", "It is tried again by itself; look at the task's explain."},
	string(ingest.CodeEmbed):       {http.StatusServiceUnavailable, "The embedding service does not answer.", "It is tried again by itself; an operator checks EMBEDDING_BASE_URL."},
	string(ingest.CodeVector):      {http.StatusServiceUnavailable, "The vector store does not answer.", "It is tried again by itself; an operator checks CHROMA_BASE_URL, PGVECTOR_URL or QDRANT_URL."},
	string(ingest.CodeVectorRejected): {http.StatusBadGateway, "The vector store refuses the request.",
		"An operator finds its answer in the log under the requestId."},
	string(ingest.CodeModelUnusable): {http.StatusServiceUnavailable, "The embedding service refuses the model, the key, or every text.",
		"An operator corrects EMBEDDING_API_KEY or EMBEDDING_MODEL, as the message says, and resumes the suspended tasks."},
	string(ingest.CodeEmbedRejected): {http.StatusUnprocessableEntity, "The embedding service refuses this text.",
		"Look at the text that the message names, and send the document without it."},
	taskstate.CodeCrashLimit: {http.StatusUnprocessableEntity, "The document stopped its worker again and again; it was set aside.",
		"Open and save it again with its own program, then send it; an operator finds the worker's end in its log."},
	string(ingest.CodeExtractCrashed): {http.StatusUnprocessableEntity, "The file brought its reader down.",
		"Open and save it again with its own program, then send it."},
	string(ingest.CodeUnsupportedType): {http.StatusUnsupportedMediaType, "No reader knows this type of file.",
		"Send a document of a supported kind (PDF, office, e-book, e-mail, web page or text), with the matching extension."},
	string(ingest.CodeLimitExceeded): {http.StatusUnprocessableEntity, "The file unpacks to more than is allowed.",
		"Split the document into smaller files."},
}
